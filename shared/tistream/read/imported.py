"""Refuses reads of tables into which IMPORT INTO or Lightning has written rows that no log contains. Such a table is
served again once it is backfilled (docs/log-backup.md). Pure, except that it reads the schema history."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.errors import InvalidRequest
from tistream.model.base_cover import Cover, clipped, holes
from tistream.model.ts import MAX_TS, Window
from tistream.pool.versions.plan import IndexShard, records_of
from tistream.read.cursor import Scope
from tistream.read.source import TenantSource
from tistream.schema.imports import ImportPeriod, problem
from tistream.schema.visible import TableVersion


class TableImported(InvalidRequest):
    """Rows that no log contains were imported into the table, and the table has not been backfilled since."""

    code = "table-imported"
    http_status = 422


def check_pull(source: TenantSource, shards: Sequence[IndexShard], scope: Scope, low: int, end_ts: int | None) -> None:
    """Raise TableImported if rows of a table of the scope were imported, and a pull of the changes in (low, end_ts]
    would therefore lack them. `end_ts` None: the pull has no end."""
    high = MAX_TS if end_ts is None else end_ts
    for one, found in source.imports_of(scope, Window(low, high)).items():
        _check(source, shards, one, found, low, high)


def check_rows(source: TenantSource, shards: Sequence[IndexShard], version: TableVersion, ts: int) -> None:
    """Raise TableImported if a read of a table as of `ts` would lack imported rows."""
    for one, found in source.imports(version.head.physical_ids).items():
        _check(source, shards, one, found, ts, ts)


def why_not_served(
    source: TenantSource, shards: Sequence[IndexShard], physical_ids: Sequence[int], ts: int
) -> str | None:
    """The reason why a table with these physical ids is not served at `ts`; None if it is served."""
    reasons = (problem(found, _read_as_of(shards, one), ts, ts) for one, found in source.imports(physical_ids).items())
    return next((reason for reason in reasons if reason is not None), None)


def _check(
    source: TenantSource, shards: Sequence[IndexShard], one: int, found: ImportPeriod, low: int, high: int
) -> None:
    reason = problem(found, _read_as_of(shards, one), low, high)
    if reason is not None:
        name = source.name_now(one)
        raise TableImported(f"table {name}: {reason}", {"table": name})


def _read_as_of(shards: Sequence[IndexShard], physical_id: int) -> int | None:
    """The lowest base_ts of the bases that cover all rows of a physical id; None if some rows were in no backfill."""
    span = records_of(physical_id).span
    cover: Cover = tuple(base for shard in shards if shard.span.overlaps(span) for base in shard.cover)
    if any(True for _ in holes(cover, [span])):
        return None
    return min(base.base_ts for base in clipped(cover, span))
