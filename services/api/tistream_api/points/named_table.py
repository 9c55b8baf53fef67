"""Finds the table that had a name at a ts, and the raw keys that a request must read. Pure, except for reads of the
schema history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tistream.decode.handle_bytes import NotAKey, handle_bound, handle_columns, handle_spans, handles_of, key_text
from tistream.errors import AlreadyDiffers, InvalidRequest, UnknownName
from tistream.model.base_cover import Hole
from tistream.model.span import KeySpan, shown_key
from tistream.near import did_you_mean
from tistream.pool.versions.plan import TableRange, record_prefix, records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.completeness import complete_from
from tistream.read.cursor import Scope
from tistream.read.imported import check_rows
from tistream.read.source import TenantSource, not_kept
from tistream.schema.tidb.table import Table
from tistream.schema.visible import TableVersion
from tistream_api.encode.shown_names import MayRead
from tistream_api.points.table_rows import Shape
from tistream_api.tenant.near_names import nearest


def table_at(source: TenantSource, scope: Scope, ts: int, may_read: MayRead | None) -> TableVersion:
    """The base table that has the name in `scope` (database and table) at `ts`. Raises UnknownName if no table, or a
    view or sequence, has this name then. `may_read` says which names the error may suggest; None: all."""
    assert scope.database is not None
    assert scope.table is not None
    version = source.table(ts, scope.database, scope.table)
    if version is None:
        raise UnknownName(
            f"there is no table {scope.database}.{scope.table} at {ts}{nearest(source, scope, ts, may_read)}: "
            "ListTables with this ts has the names"
        )
    if version.head.kind != "table":
        what = f"{scope.database}.{scope.table} is a {version.head.kind} at {ts}"
        raise UnknownName(f"{what}, which has no rows of its own: name a base table")
    return version


def check_complete(source: TenantSource, reads: PoolReads, versions: Iterable[TableVersion], ts: int) -> None:
    """Check that every row of these tables at `ts` is in the pool.

    Raises:
        Gone: the table is complete only from a later ts on, or the version index no longer has the versions as of `ts`.
        TableImported: rows were imported into a table, and it has not been backfilled since.
        NotComplete: a table had rows before the pool's first version of its keys, and they have not been backfilled.
    """
    shards = reads.shards()
    for version in versions:
        found = complete_from(source, shards, version.head.physical_ids)
        if isinstance(found, Hole):
            name = f"{version.database}.{version.head.name}"
            raise NotComplete(
                f"table {name} existed before the pool's first version of its rows, and keys from "
                f"{shown_key(found.span.start)} on have not been backfilled; pull its changes, or run a backfill "
                "(`tistream backfill run`)",
                {"table": name},
            )
        if ts < found:
            raise not_kept(ts, found)
        check_rows(source, shards, version, ts)


class NotComplete(AlreadyDiffers):
    """Raised if the rows that a table had at the tenant's snapshot are not in the pool."""

    code = "not-complete"


def shape_of(source: TenantSource, version: TableVersion, ts: int, columns: Sequence[str] | None) -> Shape:
    """How the rows of a table are shown: by its definition at `ts`, with all columns or only the given ones. Raises
    InvalidRequest if a column does not exist."""
    visible = version.table.visible_columns
    if columns is not None:
        by_name = {column.name: column for column in visible}
        for name in columns:
            if name not in by_name:
                known = ", ".join(by_name)
                raise InvalidRequest(
                    f"columns: no column {name[:80]!r}{did_you_mean(name, by_name)}; the table has {known}",
                    {"parameter": "columns"},
                )
        visible = tuple(by_name[name] for name in columns)
    return Shape(version, ts, source.schema_version(ts), visible)


def ranges_of(ids: Sequence[int], low: bytes = b"", high: bytes | None = None) -> list[TableRange]:
    """The ranges of record keys of these physical ids with `low <= handle`, and `handle < high` unless `high` is
    None."""
    found = []
    for one in sorted(ids):
        prefix, whole = record_prefix(one), records_of(one)
        start, end = prefix + low, whole.span.end if high is None else prefix + high
        if start < end:
            found.append(TableRange(one, KeySpan(start, end)))
    return found


def ranges_asked(
    version: TableVersion,
    key: dict[str, Any] | None,
    from_key: dict[str, Any] | None,
    to_key: dict[str, Any] | None,
) -> tuple[list[TableRange], str | None]:
    """The ranges of raw keys that a request must read: those of one row with `key`, or those from `from_key` to
    `to_key`. The second result is the text of the key by which the rows that were read must be filtered; None if all of
    them are wanted. Raises InvalidRequest, which names the parameter."""
    table, ids = version.table, version.head.physical_ids
    if key is not None:
        return key_ranges(table, ids, key)
    low = b"" if from_key is None else _bound("from_key", table, from_key)
    high = None if to_key is None else _bound("to_key", table, to_key)
    spans = handle_spans(table, low, high)
    return _by_key(one for begin, end in spans for one in ranges_of(ids, begin, end)), None


def key_ranges(table: Table, ids: Sequence[int], key: dict[str, Any]) -> tuple[list[TableRange], str | None]:
    """Returns (the raw keys that a row with this key may have, the text of the key by which the rows must be filtered).
    The text is None if every row with one of these raw keys has the key. Raises InvalidRequest."""
    try:
        text = key_text(table, key)
        if handle_columns(table) is None:
            return ranges_of(ids), text
        found = [one for handle in handles_of(table, key) for one in ranges_of(ids, handle, handle + b"\0")]
    except NotAKey as error:
        raise InvalidRequest(f"key {error}", {"parameter": "key"}) from error
    return _by_key(found), None


def _by_key(ranges: Iterable[TableRange]) -> list[TableRange]:
    return sorted(ranges, key=lambda one: one.span.start)


def _bound(name: str, table: Table, key: dict[str, Any]) -> bytes:
    if handle_columns(table) is None:
        raise InvalidRequest(
            f"{name} goes with tables whose rows are stored by a key of integers or byte-wise compared strings; "
            f"{table.name} is not one of them",
            {"parameter": name},
        )
    try:
        return handle_bound(table, key)
    except NotAKey as error:
        raise InvalidRequest(f"{name} {error}", {"parameter": name}) from error
