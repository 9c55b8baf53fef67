"""Converts committed rows to row events (design.md 5, "What a pull returns"), whole columns at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.decode.kernels.arrow_buffers import number_array, validity
from tistream.decode.keys import int_handles
from tistream.decode.row_compare import same_rows
from tistream.decode.rows import decode_rows
from tistream.format.segment import OP_PUT as STORED_PUT
from tistream.read.events import Image, RawRows, Rows, ascend
from tistream.read.plan import OP_DELETE, OP_PUT
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion

Moving = Callable[[TableVersion], Sequence[Column]]
"""The columns of a table, besides those of its key, whose change turns an update into a delete and a put."""
Needed = Callable[[TableVersion], Sequence[Column]]
"""The visible columns of a table whose values are decoded."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Rows with `low < commit_ts <= high` are decoded and shown as `version` of their table defines it. If `version` is
    None, they are not shown."""

    low: int
    high: int
    version: TableVersion | None


@dataclass(frozen=True, slots=True)
class Shapes:
    """The table versions that decode and show one chunk's rows. `intervals` has an entry for each physical id that is
    shown. `unknown` are the ids that no schema ever contained, whose rows cannot be decoded. Events with a commit_ts
    above `version_ts[i]` have schema version `versions[i]`; `version_ts` ascends and begins below every row."""

    intervals: Mapping[int, Sequence[Interval]]
    unknown: frozenset[int]
    version_ts: Int64s
    versions: Int64s


@dataclass(frozen=True, slots=True)
class Barrier:
    """A row that cannot be decoded. A pull ends below its commit_ts."""

    commit_ts: int
    table: str | None  # database.table
    table_id: int  # physical
    key: bytes
    reason: str

    def __str__(self) -> str:
        where = f"table {self.table}" if self.table else f"table id {self.table_id}"
        return f"{where}, key {self.key.hex()}, commit_ts {self.commit_ts}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Rendered:
    """Row events of one chunk, in any order, and the lowest barrier if some row cannot be decoded."""

    sets: list[Rows | RawRows]
    barrier: Barrier | None


def render(
    rows: pa.Table,
    shapes: Shapes,
    op: int | None = None,
    *,
    numbered: bool = False,
    moving: Moving | None = None,
    needed: Needed | None = None,
) -> Rendered:
    """Convert committed rows (tistream.format.segment.SCHEMA, in any order) to events. `op` restricts them to deletes
    or to puts. `numbered`: ENUM and SET are numbers, not names. `moving`: the columns whose change turns an update into
    a delete and a put. `needed`: the columns that the reader needs, which include those of `moving`; None: all. The
    other columns are null in the events; they are compared only to leave out an update that has changed no column."""
    sets: list[Rows | RawRows] = []
    barriers: list[Barrier] = []
    rows = rows.combine_chunks()
    ids, commit_ts = (rows.column(name).to_numpy() for name in ("table_id", "commit_ts"))
    if not ascend([ids, commit_ts]) and not _whole(shapes, ids, commit_ts):
        order = np.lexsort((commit_ts, ids))
        rows = rows.take(pa.array(order)).combine_chunks()
        ids, commit_ts = ids[order], commit_ts[order]
    starts = np.flatnonzero(np.diff(ids, prepend=np.int64(-1)))
    for start, end in pairwise([*starts.tolist(), len(ids)]):
        physical_id = int(ids[start])
        if physical_id in shapes.unknown:
            barriers.extend(_nameless(rows.slice(start, end - start), physical_id))
        for interval in shapes.intervals.get(physical_id, ()):
            low, high = _within(interval, commit_ts, start, end)
            if interval.version is not None and low < high:
                part = _Part(rows.slice(low, high - low), interval.version, op, numbered, moving, needed)
                sets.append(part.events(shapes))
                barriers.extend(part.barriers)
    return Rendered(sets, min(barriers, key=lambda barrier: barrier.commit_ts, default=None))


def _whole(shapes: Shapes, ids: Int64s, commit_ts: Int64s) -> bool:
    """Whether the rows are grouped by id, and no interval cuts through the rows of an id: then their order is kept."""
    if len(ids) == 0 or (np.diff(ids) < 0).any():
        return False
    low, high = int(commit_ts.min()), int(commit_ts.max())
    found = [shapes.intervals.get(int(one), ()) for one in np.unique(ids)]
    return all(len(each) <= 1 and all(one.low < low and high <= one.high for one in each) for each in found)


def _within(interval: Interval, commit_ts: Int64s, start: int, end: int) -> tuple[int, int]:
    """The range (first, end) of the rows from `start` to `end` (exclusive) whose commit_ts is in the interval. The rows
    must ascend by commit_ts, unless all of them are in the interval."""
    some = commit_ts[start:end]
    if interval.low < int(some.min()) and int(some.max()) <= interval.high:
        return start, end
    low, high = (int(start + np.searchsorted(some, ts, side="right")) for ts in (interval.low, interval.high))
    return low, high


def _nameless(rows: pa.Table, physical_id: int) -> list[Barrier]:
    """A barrier at the row with the lowest commit_ts, because no schema ever named the table of these rows. Deletes of
    rows that did not exist are ignored, because they give no event in any table: TiDB may delete the rows of a table in
    this way after the table was dropped before the tenant's snapshot. Empty if there are no other rows."""
    shown = pc.or_(pc.equal(rows["op"], STORED_PUT), pc.is_valid(rows["old_value"]))
    some = rows.select(["commit_ts", "key"]).filter(shown).sort_by("commit_ts").slice(0, 1).to_pylist()
    reason = "no schema ever named its table"
    return [Barrier(first["commit_ts"], None, physical_id, first["key"], reason) for first in some]


class _Part:
    """The rows of one physical table to which one version of it applies."""

    def __init__(
        self,
        rows: pa.Table,
        version: TableVersion,
        op: int | None,
        numbered: bool,
        moving: Moving | None,
        needed: Needed | None,
    ) -> None:
        self.barriers: list[Barrier] = []
        self._version = version
        self._op = op
        self._numbered = numbered
        self._moving = moving
        visible = version.table.visible_columns
        self._needed = visible if needed is None else needed(version)
        # Columns are identified by their offsets, because `==` of two columns compares all their fields.
        self._offsets = frozenset(column.offset for column in self._needed)
        self._column = {name: _chunk(rows, name) for name in rows.schema.names}
        put = self._column["op"].to_numpy(zero_copy_only=False) == STORED_PUT
        valued, old = (validity(self._column[name]) for name in ("value", "old_value"))
        if op is not None:  # a delete needs the old row; a put needs the new row too
            put, old = (put & old, old) if op == OP_DELETE else (put, old & put)
        for row in np.flatnonzero(put & ~valued):
            self._undecodable(int(row), "a put without a value")
        self._put, self._new, self._old = put, put & valued, old

    def events(self, shapes: Shapes) -> Rows:
        """Convert the rows to events: deletes, then puts, each in the order of the rows."""
        new, old = self._image("value", self._new), self._image("old_value", self._old)
        come, gone = self._new, self._old & ~self._put
        moved = np.zeros(len(self._put), dtype=bool)
        if new is not None and old is not None:
            both = np.flatnonzero(self._new & self._old)
            moved[both] = ~same_rows(new.keys, old.keys, both)
            if self._moving is not None:
                visible, chosen = self._version.table.visible_columns, self._moving(self._version)
                places = [place for place, column in enumerate(visible) if column in chosen]
                here, there = ([image.columns[place] for place in places] for image in (new, old))
                moved[both] |= ~same_rows(here, there, both)
            come = come.copy()
            come[both] = self._changed(new, old, both)
            gone |= moved
        nothing = np.empty(0, np.int64)
        deletes = nothing if self._op == OP_PUT else np.flatnonzero(gone)
        puts = nothing if self._op == OP_DELETE else np.flatnonzero(come)
        rows = np.concatenate([deletes, puts]) if len(deletes) else puts
        before = np.where(self._old[puts] & ~moved[puts], puts, -1)
        commit_ts, start_ts = (self._column[name].to_numpy()[rows] for name in ("commit_ts", "start_ts"))
        at = np.searchsorted(shapes.version_ts, commit_ts, side="left") - 1
        return Rows(
            self._version,
            new,
            old,
            commit_ts,
            start_ts,
            shapes.versions[at],
            np.repeat(np.array([OP_DELETE, OP_PUT]), [len(deletes), len(puts)]),
            np.concatenate([np.full(len(deletes), -1), puts]),
            np.concatenate([deletes, before]),
            _elements(self._column["key"], rows),
            moved[rows],
        )

    def _changed(self, new: Image, old: Image, both: Int64s) -> npt.NDArray[np.bool_]:
        """For each of the rows with the indexes `both`, which have a new and an old image: whether a visible column
        differs. Columns that the reader does not need are decoded only for rows whose needed columns are equal although
        their stored bytes differ."""
        visible = self._version.table.visible_columns
        places = [place for place, column in enumerate(visible) if column.offset in self._offsets]
        out = ~same_rows([new.columns[at] for at in places], [old.columns[at] for at in places], both)
        rest = [column for column in visible if column.offset not in self._offsets]
        if rest and not out.all():
            stored = [self._column[name].take(pa.array(both)) for name in ("value", "old_value")]
            unsure = np.flatnonzero(~out & pc.not_equal(*stored).to_numpy(zero_copy_only=False))
            if len(unsure):
                now, before = (self._decoded(rest, name, both[unsure]) for name in ("value", "old_value"))
                out[unsure] = ~same_rows(now, before, np.arange(len(unsure)))
        return out

    def _decoded(self, columns: Sequence[Column], name: str, rows: Int64s) -> list[pa.Array]:
        """Decode `columns` of the rows with the indexes `rows`. `name` is `value` for the new rows, or `old_value`."""
        chosen = pa.array(rows)
        raw, values = (self._column[of].take(chosen) for of in ("key", name))
        batch = decode_rows(self._version.table, columns, raw, values, numbered=self._numbered).batch
        return [batch.column(at) for at in range(len(columns))]

    def _image(self, name: str, rows: npt.NDArray[np.bool_]) -> Image | None:
        """Decode the column `name`, the new or the old values, of the selected rows. Rows that cannot be decoded become
        barriers."""
        if not rows.any():
            return None
        table = self._version.table
        visible, keys, needed = table.visible_columns, table.key_columns, self._needed
        columns = [*needed, *(column for column in keys if column.offset not in self._offsets)]
        places = {column.offset: place for place, column in enumerate(columns)}
        values, raw = self._column[name], self._column["key"]
        if (validity(values) & ~rows).any():
            values = pc.if_else(pa.array(rows), values, None)
        decoded = decode_rows(table, columns, raw, values, numbered=self._numbered)
        for bad, reason in decoded.errors.items():
            self._undecodable(bad, reason)
        arrays = [decoded.batch.column(at) for at in range(len(columns))]
        shown = arrays[: len(visible)]
        if len(needed) < len(visible):
            nulls = pa.nulls(len(raw))
            shown = [arrays[places[one.offset]] if one.offset in self._offsets else nulls for one in visible]
        if keys:
            return Image(shown, [arrays[places[column.offset]] for column in keys])
        handles, present = int_handles(raw)
        return Image(shown, [number_array(handles, present)])

    def _undecodable(self, row: int, reason: str) -> None:
        commit_ts, physical_id, key = (self._column[name][row].as_py() for name in ("commit_ts", "table_id", "key"))
        name = f"{self._version.database}.{self._version.table.name}"
        self.barriers.append(Barrier(commit_ts, name, physical_id, key, reason))


def _elements(values: pa.Array, rows: Int64s) -> pa.Array:
    """The elements of `values` at the indexes `rows`, which are distinct. Nothing is copied if `rows` are all indexes
    in order."""
    if len(rows) == len(values) and (np.diff(rows) == 1).all():
        return values
    return values.take(pa.array(rows))


def _chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
