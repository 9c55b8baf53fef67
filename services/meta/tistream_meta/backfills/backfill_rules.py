"""Checks requests for backfills: whether they are well formed, and whether the source can be read and belongs to the
tenant's cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tistream.errors import CorruptObject, InvalidRequest, NotFoundYet, SourceRefused
from tistream.model.ids import TenantKey
from tistream.storage.backups.backup_reader import open_backup
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import check_url
from tistream.wire.bulk.backfills import PATTERN_MAX, BackfillSource, StartBackfill
from tistream_meta.backfills.backfill_book import BackfillBook
from tistream_meta.database.source_book import StoredSources
from tistream_meta.decide.source_policy import full_backup_refusal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackfillRules:
    """Checks and starts backfills. `open_backup_store` opens the object store of a full backup by its URL."""

    book: BackfillBook
    sources: StoredSources
    open_backup_store: Callable[[str], ObjectStore]

    def start(self, key: TenantKey, order: StartBackfill) -> str:
        """Start a backfill and return its id. If a backfill with the same source and tables is running, return that
        one's id.

        Raises:
            InvalidRequest: the request is malformed.
            SourceRefused: the source cannot be read, or not for this tenant; the text states why.
            UnknownName: no such tenant.
            LimitReached: too many backfills.
            Unavailable: a store did not answer.
        """
        check(order)
        if order.source.url is not None:
            self._look(key, order.source.url)
        backfill_id = self.book.start(key, order.source, order.tables)
        log.info("backfill started", extra={"tenant": str(key), "backfill": backfill_id, "kind": order.source.kind})
        return backfill_id

    def _look(self, key: TenantKey, url: str) -> None:
        tenant, sources, _ = self.sources.of_tenant(key)
        try:
            full = open_backup(self.open_backup_store(url))
        except (CorruptObject, InvalidRequest, NotFoundYet) as error:
            raise SourceRefused(f"{url}: {error}") from error
        reason = full_backup_refusal(full, tenant.snapshot_ts, {one.upstream_id for one in sources})
        if reason is not None:
            raise SourceRefused(reason)


def check(order: StartBackfill) -> None:
    """Check that a request has the members that its kind of source requires and no others, and that its patterns of
    tables are well formed. Raises InvalidRequest, which names the wrong member."""
    source = order.source
    _check_members(source)
    if source.url is not None:
        if not source.url.isascii():
            raise InvalidRequest("url: percent-encode characters that are not ASCII", {"parameter": "source"})
        check_url(source.url)
    for pattern in order.tables:
        database, point, table = pattern.partition(".")
        if not (database and point and table) or "[" in pattern or len(pattern) > PATTERN_MAX:
            raise InvalidRequest(
                f"tables: {pattern[:PATTERN_MAX]!r} is not of the form database.table, as in shop.*",
                {"parameter": "tables"},
            )


def _check_members(source: BackfillSource) -> None:
    needs = {"br-full": "url", "sql": "dsn_file", "push": None}[source.kind]
    for name in ("url", "dsn_file"):
        given = getattr(source, name) is not None
        if given != (name == needs):
            stated = f"needs {name}" if not given else f"has no {name}"
            raise InvalidRequest(f"a source of kind {source.kind} {stated}", {"parameter": "source"})
