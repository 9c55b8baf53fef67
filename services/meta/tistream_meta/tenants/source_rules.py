"""Operators' changes of sources: a log backup becomes the source of a tenant only if it can be read from where the
tenant begins."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tistream.errors import CommitConflict, CorruptObject, InvalidRequest, NotFoundYet, SourceRefused
from tistream.logbackup import metadata, prefix
from tistream.logbackup.prefix import LogBackup
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.storage.release_log import ReleaseLog
from tistream.wire.sources import AddSource
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Source
from tistream_meta.decide.source_policy import SourceFacts, refusal
from tistream_meta.tenants import snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceRules:
    """objects: the platform's object store. open_log: opens another one by its URL.

    schema_of: gives the schema_snap in a full backup of BR, from its object store. Raises SourceRefused, CorruptObject,
    NotFoundYet. None: no full backup is read.
    """

    repository: Repository
    objects: ObjectStore
    open_log: Callable[[str], ObjectStore]
    schema_of: Callable[[ObjectStore], bytes] | None = None

    def add(self, key: TenantKey, wanted: AddSource) -> Source:
        """Add a source, after its bucket was looked at. Idempotent.

        Raises:
            UnknownName: no such tenant.
            SourceRefused: the bucket cannot be the tenant's source; the text states why.
            AlreadyDiffers: the tenant has another source.
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
            schema = None if tenant.snapshot_ts is not None else self._schema(key, wanted)
            snapshot_ts = tenant.snapshot_ts if schema is None else schema[0]
            facts = SourceFacts(backup, snapshot_ts, released_ts, safe_point_ts, earlier, stores)
            if reason := refusal(facts):
                raise SourceRefused(reason)
            if schema is not None:
                self._put_schema(key, schema[1])
            upstream_id = str(backup.cluster_id)
        else:
            upstream_id = earlier[-1].upstream_id
        source, new = self.repository.sources.add(key, wanted.kind, wanted.url, stated, upstream_id)
        if new:
            log.info("source added", extra={"tenant": str(key), "source": source.source_id, "kind": source.kind})
        return source

    def remove(self, key: TenantKey, source_id: str) -> Source:
        """Remove a source. What it has released stays. Raises UnknownName."""
        source = self.repository.sources.remove(key, source_id)
        log.info("source removed", extra={"tenant": str(key), "source": source_id})
        return source

    def _check_form(self, wanted: AddSource) -> None:
        if not wanted.url.isascii():
            raise InvalidRequest("url: percent-encode characters that are not ASCII", {"parameter": "url"})
        if wanted.snapshot.kind == "br-full" and wanted.snapshot.url is None:
            raise InvalidRequest("snapshot br-full needs the url of the full backup", {"parameter": "snapshot"})
        if wanted.snapshot.kind == "br-full" and self.schema_of is None:
            raise SourceRefused(
                "snapshot br-full is not supported by this version: push the tenant's schema_snap, and say "
                '{"kind": "none"}'
            )
        if wanted.snapshot.kind == "none" and wanted.snapshot.url is not None:
            raise InvalidRequest("snapshot of kind none takes no url: leave it out", {"parameter": "snapshot"})

    def _schema(self, key: TenantKey, wanted: AddSource) -> tuple[int, bytes] | None:
        """The snapshot_ts and the schema_snap of the full backup that the request names; None without one."""
        if self.schema_of is None or wanted.snapshot.url is None:
            return None
        try:
            data = self.schema_of(self.open_log(wanted.snapshot.url))
            return snapshot.parse(layout.schema_snap(key), data).snapshot_ts, data
        except NotFoundYet as error:
            raise SourceRefused(f"{error}: {wanted.snapshot.url} is not the prefix of a full backup") from error
        except SourceRefused:
            raise
        except (CorruptObject, InvalidRequest) as error:
            raise SourceRefused(str(error)) from error

    def _put_schema(self, key: TenantKey, data: bytes) -> None:
        """Put the schema_snap, unless one has come meanwhile."""
        name = layout.schema_snap(key)
        try:
            self.objects.put_new(name, data)
        except CommitConflict:
            if self.objects.get(name) != data:
                raise SourceRefused(f"{name} is there and differs from that of the full backup") from None

    def _look(self, url: str) -> tuple[LogBackup, int]:
        """What the prefix holds, and its safe point."""
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
