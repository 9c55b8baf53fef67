"""Compares one table at two timestamps, and makes one event for each key whose row differs. Rows are shown by the
table's definition at the later ts, with columns matched by their ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.format.segment import OP_DELETE, SCHEMA
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS, Window
from tistream.pool.versions.plan import records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.events import Rows
from tistream.read.row_events import Barrier, Interval, Shapes, render
from tistream.schema.tidb.table import Table
from tistream.schema.visible import TableVersion

NO_START = 0  # start_ts of a delete that no transaction of a row made: its table was truncated, for example


@dataclass(frozen=True, slots=True)
class TableComparison:
    """What is compared for one table. Physical ids are in `kept` if the table has them at both timestamps, in `gone` if
    only at the earlier one, in `new` if only at the later one. Events show the rows by the definition `version`."""

    version: TableVersion
    schema_version: int
    low_ts: int
    high_ts: int
    kept: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    new: tuple[int, ...] = ()

    @property
    def ids(self) -> list[int]:
        """All physical ids, ascending."""
        return sorted((*self.kept, *self.gone, *self.new))

    @property
    def moves(self) -> bool:
        """Whether a row may have got another raw key between the two timestamps. Then several raw keys may belong to
        the same values of the key columns."""
        table = self.version.table
        by_handle = not table.key_columns or table.key_columns == table.handle_columns
        return len(self.ids) > 1 or not by_handle


def parts_between(
    before: TableVersion | None, after: TableVersion | None, versions: tuple[int, int], low_ts: int, high_ts: int
) -> list[TableComparison]:
    """The comparisons that are needed for a name which the table `before` has at `low_ts` and the table `after` at
    `high_ts`. `versions` are the schema versions at these timestamps. If the two tables cannot be compared, every row
    of `before` is deleted and every row of `after` is new."""
    if before is None and after is None:
        return []
    mine = set() if before is None else set(before.head.physical_ids)
    now = set() if after is None else set(after.head.physical_ids)
    gone, new, kept = (tuple(sorted(ids)) for ids in (mine - now, now - mine, mine & now))
    if after is None:
        assert before is not None
        return [TableComparison(before, versions[0], low_ts, high_ts, gone=gone)]
    if before is None or comparable(before.table, after.table):
        return [TableComparison(after, versions[1], low_ts, high_ts, kept, gone, new)]
    old = TableComparison(before, versions[0], low_ts, high_ts, gone=gone)
    return [*([old] if gone else []), TableComparison(after, versions[1], low_ts, high_ts, kept, (), new)]


def comparable(before: Table, after: Table) -> bool:
    """Whether rows of `before` and `after` can be compared: they are the same table, or, as after a TRUNCATE or
    EXCHANGE, tables with the same kind of row key and at least one column id in common, and all such columns have the
    same name, type, character set and elements."""
    if before.id == after.id:
        return True
    if (before.pk_is_handle, before.is_common_handle) != (after.pk_is_handle, after.is_common_handle):
        return False
    known = {column.id: column for column in before.columns}
    shared = [(known[column.id], column) for column in after.columns if column.id in known]
    return bool(shared) and all(
        (a.name, a.tp, a.unsigned, a.charset, a.elems) == (b.name, b.tp, b.unsigned, b.charset, b.elems)
        for a, b in shared
    )


def changed(reads: PoolReads, part: TableComparison, start: bytes) -> Iterator[pa.Table]:
    """Yield rows that may differ, with keys at or above `start`, in key order (tistream.format.segment.SCHEMA): `value`
    is the row at the later ts and `old_value` the one at the earlier ts."""
    rest = KeySpan(start, b"")
    for one in part.ids:
        asked = records_of(one).clip(rest)
        if asked is None:
            continue
        if one in part.gone:
            yield from (_deleted(rows, part.high_ts) for rows in reads.scan(Window(0, part.low_ts), [asked]))
        elif one in part.new:
            yield from map(_appeared, reads.scan(Window(0, part.high_ts), [asked]))
        elif part.low_ts < part.high_ts:
            yield from map(_differing, reads.net(Window(part.low_ts, part.high_ts), [asked]))


def _differing(rows: pa.Table) -> pa.Table:
    """Leave out the rows whose values are equal byte for byte."""
    differ = pc.fill_null(pc.not_equal(rows.column("value"), rows.column("old_value")), True)
    return rows if pc.all(differ).as_py() else rows.filter(differ)


def _sides(rows: pa.Table, old: pa.ChunkedArray) -> pa.Table:
    columns = {name: rows.column(name) for name in rows.column_names} | {"old_value": old}
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _appeared(rows: pa.Table) -> pa.Table:
    return _sides(rows, pa.chunked_array([pa.nulls(len(rows), pa.binary())]))


def _deleted(rows: pa.Table, ts: int) -> pa.Table:
    count = len(rows)
    made = {
        "commit_ts": np.full(count, ts, np.int64),
        "start_ts": np.full(count, NO_START, np.int64),
        "op": np.full(count, OP_DELETE, np.int8),
    }
    columns = {name: rows.column(name) for name in ("table_id", "key", "txn_source")}
    columns |= {name: pa.array(values) for name, values in made.items()}
    columns |= {"value": pa.nulls(count, pa.binary()), "old_value": rows.column("value")}
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def rendered(part: TableComparison, rows: pa.Table, op: int | None = None) -> tuple[list[Rows], Barrier | None]:
    """Convert rows to events, in no order. They end before the first key with a row that cannot be decoded, which the
    barrier describes. `op` restricts them to deletes or to puts."""
    barrier: Barrier | None = None
    while True:
        intervals = {one: [Interval(0, MAX_TS, part.version)] for one in part.ids}
        stamps = np.array([-1], np.int64), np.array([part.schema_version], np.int64)
        found = render(rows, Shapes(intervals, frozenset(), *stamps), op)
        if found.barrier is None:
            return [one for one in found.sets if isinstance(one, Rows) and len(one)], barrier
        barrier = found.barrier  # of the lowest commit_ts: another one may be of a lower key
        below = pc.less(rows.column("key"), pa.scalar(barrier.key, pa.binary()))
        rows = rows.filter(below)
