"""Executes operators' requests to add and remove sources. A log backup becomes the source of a tenant only if it can be
read from the ts on at which the tenant begins."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from tistream.errors import CommitConflict, CorruptObject, InvalidRequest, NotFoundYet, SourceRefused
from tistream.format.br.full_backup import FullBackup
from tistream.logbackup import metadata, prefix
from tistream.logbackup.prefix import LogBackup
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backups.backup_reader import open_backup, read_schema_snap
from tistream.storage.object_store import ObjectStore
from tistream.storage.release_log import ReleaseLog
from tistream.wire.bulk.sources import AddSource
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Source
from tistream_meta.decide.source_policy import SourceFacts, refusal
from tistream_meta.tenants import snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Executes the requests of operators about sources. objects: the platform's object store. open_log: opens another
    store by its URL. backfill: starts the backfill of all tables of a tenant from the full backup at a URL, in the
    transaction that adds the source."""

    repository: Repository
    objects: ObjectStore
    open_log: Callable[[str], ObjectStore]
    backfill: Callable[[Connection, TenantKey, str], object]

    def add(self, key: TenantKey, wanted: AddSource) -> Source:
        """Check the bucket of a log backup, add it as the tenant's source, and start the backfill from its full backup,
        if one is named. Idempotent.

        Raises:
            InvalidRequest: the request is malformed.
            UnknownName: no such tenant.
            SourceRefused: the bucket cannot be the tenant's source; the text states why.
            AlreadyDiffers: the tenant has another source.
            LimitReached: the tenant has too many backfills.
            Unavailable: a store did not answer.
        """
        self._check_form(wanted)
        stated = wanted.snapshot.kind, wanted.snapshot.url
        tenant, earlier, stores = self.repository.sources.of_tenant(key)
        for one in earlier:
            if not one.removed and (one.kind, one.url, (one.snapshot_kind, one.snapshot_url)) == (
                wanted.kind,
                wanted.url,
                stated,
            ):
                return one
        if all(one.removed for one in earlier):  # else the database answers that there is another one
            backup, safe_point_ts = self._look(wanted.url)
            newest = ReleaseLog(self.objects, key).newest()
            released_ts = None if newest is None else newest.high
            full, schema = self._full(key, wanted, begun=tenant.snapshot_ts is not None)
            snapshot_ts = full.end_version if full is not None and schema is not None else tenant.snapshot_ts
            facts = SourceFacts(backup, snapshot_ts, released_ts, safe_point_ts, earlier, stores, full)
            if reason := refusal(facts):
                raise SourceRefused(reason)
            if schema is not None:
                self._put_schema(key, schema)
            upstream_id = str(backup.cluster_id)
        else:
            upstream_id = earlier[-1].upstream_id

        def backfill(connection: Connection) -> None:
            if wanted.snapshot.url is not None:
                self.backfill(connection, key, wanted.snapshot.url)

        source, new = self.repository.sources.add(key, wanted.kind, wanted.url, stated, upstream_id, backfill)
        if new:
            log.info("source added", extra={"tenant": str(key), "source": source.source_id, "kind": source.kind})
        return source

    def remove(self, key: TenantKey, source_id: str) -> Source:
        """Remove a source. The changes of it that were pushed as change files are kept. Raises UnknownName."""
        source = self.repository.sources.remove(key, source_id)
        log.info("source removed", extra={"tenant": str(key), "source": source_id})
        return source

    def _check_form(self, wanted: AddSource) -> None:
        if not wanted.url.isascii():
            raise InvalidRequest("url: percent-encode characters that are not ASCII", {"parameter": "url"})
        if wanted.snapshot.kind == "br-full" and wanted.snapshot.url is None:
            raise InvalidRequest(
                "snapshot of kind br-full has no url: give that of the full backup", {"parameter": "snapshot"}
            )
        if wanted.snapshot.kind == "none" and wanted.snapshot.url is not None:
            raise InvalidRequest("snapshot of kind none takes no url: leave it out", {"parameter": "snapshot"})
        if wanted.snapshot.url is not None and not wanted.snapshot.url.isascii():
            raise InvalidRequest("url: percent-encode characters that are not ASCII", {"parameter": "snapshot"})

    def _full(self, key: TenantKey, wanted: AddSource, *, begun: bool) -> tuple[FullBackup | None, bytes | None]:
        """Read the full backup that the request names. Returns it, and its schema_snap unless the tenant has one
        (`begun`). Both are None if the request names no full backup. Raises SourceRefused."""
        if wanted.snapshot.url is None:
            return None, None
        try:
            opened = self.open_log(wanted.snapshot.url)
            full = open_backup(opened)
            if begun:
                return full, None
            schema = read_schema_snap(opened, full)
            snapshot.parse(layout.schema_snap(key), schema)
        except NotFoundYet as error:
            raise SourceRefused(
                f"{error}: the full backup at {wanted.snapshot.url} is not complete; name one that has ended"
            ) from error
        except (CorruptObject, InvalidRequest) as error:
            raise SourceRefused(f"{wanted.snapshot.url}: {error}") from error
        return full, schema

    def _put_schema(self, key: TenantKey, data: bytes) -> None:
        """Write the schema_snap, unless one exists. Raises SourceRefused if the existing one differs."""
        name = layout.schema_snap(key)
        try:
            self.objects.put_new(name, data)
        except CommitConflict:
            if self.objects.get(name) != data:
                raise SourceRefused(
                    f"{name} exists, and differs from that of the full backup: name the backup that the tenant began "
                    "with, or another tenant"
                ) from None

    def _look(self, url: str) -> tuple[LogBackup, int]:
        """Read the metadata below the prefix of a log backup. Returns (the metadata, the log's safe point; 0 if it has
        none). Raises SourceRefused."""
        try:
            opened = self.open_log(url)
            backup = prefix.parse_backupmeta(opened.get(prefix.BACKUPMETA))
            newest = None
            for info in opened.list_after(prefix.METAS):
                newest = info.key
            if newest is not None:
                metadata.parse(newest, opened.get(newest))
            return backup, self._safe_point(opened)
        except NotFoundYet as error:
            raise SourceRefused(
                f"{error}: the URL is not the prefix of a log backup; name the one that `br log start` was given"
            ) from error
        except SourceRefused:
            raise
        except (CorruptObject, InvalidRequest) as error:
            raise SourceRefused(str(error)) from error

    def _safe_point(self, opened: ObjectStore) -> int:
        try:
            return prefix.parse_safe_point(opened.get(prefix.SAFE_POINT))
        except NotFoundYet:
            return 0
