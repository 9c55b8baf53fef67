"""Committed rows to row events, whole columns at a time. Pure. (design.md 5, "What an event says")"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tistream.decode.keys import int_handles
from tistream.decode.row_compare import same_rows
from tistream.decode.rows import decode_rows
from tistream.format.segment import OP_PUT as STORED_PUT
from tistream.schema.visible import TableVersion
from tistream_api.events import Rows
from tistream_api.plan import OP_DELETE, OP_PUT

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """Rows with `low < commit_ts <= high` are shown as `version` says; None: they are not shown."""

    low: int
    high: int
    version: TableVersion | None


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the schema history says about the rows of one chunk.

    `intervals`: per physical id that is to be shown. `unknown`: ids that no schema ever named. From `version_ts[i]`
    (exclusive) on, events bear `versions[i]`; `version_ts` ascends and begins below every row.
    """

    intervals: Mapping[int, Sequence[Interval]]
    unknown: frozenset[int]
    version_ts: Ints
    versions: Ints


@dataclass(frozen=True, slots=True)
class Barrier:
    """A row that cannot be shown, and so nothing from its commit_ts on."""

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
    """Row events of one chunk in no order, and the lowest barrier met."""

    sets: list[Rows]
    barrier: Barrier | None


def render(rows: pa.Table, shapes: Shapes, op: int | None = None) -> Rendered:
    """The events of committed rows (tistream.format.segment.SCHEMA, any order); `op` asks for deletes or puts alone."""
    sets: list[Rows] = []
    barriers: list[Barrier] = []
    rows = rows.combine_chunks()
    ids, commit_ts = (rows.column(name).to_numpy() for name in ("table_id", "commit_ts"))
    order = np.lexsort((commit_ts, ids))
    if not (np.diff(order) == 1).all():
        rows = rows.take(pa.array(order)).combine_chunks()
        ids, commit_ts = ids[order], commit_ts[order]
    starts = np.flatnonzero(np.diff(ids, prepend=np.int64(-1)))
    for start, end in pairwise([*starts.tolist(), len(ids)]):
        physical_id = int(ids[start])
        if physical_id in shapes.unknown:
            barriers.append(_nameless(rows.slice(start, 1), physical_id))
        for interval in shapes.intervals.get(physical_id, ()):
            low, high = (
                int(start + np.searchsorted(commit_ts[start:end], ts, side="right"))
                for ts in (interval.low, interval.high)
            )
            if interval.version is not None and low < high:
                part = _Part(rows.slice(low, high - low), interval.version, op)
                sets.append(part.events(shapes))
                barriers.extend(part.barriers)
    return Rendered(sets, min(barriers, key=lambda barrier: barrier.commit_ts, default=None))


def _nameless(row: pa.Table, physical_id: int) -> Barrier:
    first = row.select(["commit_ts", "key"]).to_pylist()[0]
    return Barrier(first["commit_ts"], None, physical_id, first["key"], "no schema ever named its table")


class _Part:
    """Rows of one physical table in one of its versions."""

    def __init__(self, rows: pa.Table, version: TableVersion, op: int | None) -> None:
        self.barriers: list[Barrier] = []
        self._version = version
        self._op = op
        self._column = {name: _chunk(rows, name) for name in rows.schema.names}
        put = self._column["op"].to_numpy(zero_copy_only=False) == STORED_PUT
        old = np.asarray(self._column["old_value"].is_valid())
        if op is not None:  # of a delete the row before, of a put also what it brings
            put, old = (put & old, old) if op == OP_DELETE else (put, old & put)
        valued = np.asarray(self._column["value"].is_valid())
        for row in np.flatnonzero(put & ~valued):
            self._undecodable(int(row), "a put without a value")
        self._put, self._old = put, old
        self._new_rows, self._old_rows = np.flatnonzero(put & valued), np.flatnonzero(old)

    def events(self, shapes: Shapes) -> Rows:
        """The part's events, deletes and puts each in the rows' own order."""
        image, key_arrays = self._images()
        new, old = (np.full(len(self._put), -1, np.int64) for _ in range(2))
        new[self._new_rows] = np.arange(len(self._new_rows))
        old[self._old_rows] = len(self._new_rows) + np.arange(len(self._old_rows))
        both = np.flatnonzero((new >= 0) & (old >= 0))
        unchanged, moved = (np.zeros(len(new), dtype=bool) for _ in range(2))
        shown = image.columns[: len(self._version.table.visible_columns)]
        unchanged[both] = same_rows(shown, new[both], old[both])
        moved[both] = ~same_rows(key_arrays, new[both], old[both])
        nothing = np.empty(0, np.int64)
        gone = nothing if self._op == OP_PUT else np.flatnonzero((old >= 0) & (~self._put | moved))
        come = nothing if self._op == OP_DELETE else np.flatnonzero((new >= 0) & ~unchanged)
        rows = np.concatenate([gone, come]) if len(gone) else come
        op = np.repeat(np.array([OP_DELETE, OP_PUT]), [len(gone), len(come)])
        commit, start = (self._column[name].to_numpy()[rows] for name in ("commit_ts", "start_ts"))
        at = np.searchsorted(shapes.version_ts, commit, side="left") - 1
        return Rows(
            self._version,
            image,
            key_arrays,
            commit,
            start,
            shapes.versions[at],
            op,
            np.where(op == OP_PUT, new[rows], -1),
            np.where((op == OP_PUT) & moved[rows], -1, old[rows]),
            _taken(self._column["key"], rows),
        )

    def _images(self) -> tuple[pa.RecordBatch, tuple[pa.Array, ...]]:
        """Both sides of the rows, decoded: the new ones, then the old ones. What cannot be becomes barriers."""
        table = self._version.table
        visible, keys = table.visible_columns, table.key_columns
        columns = [*visible, *(column for column in keys if column not in visible)]
        wanted = {"value": self._new_rows, "old_value": self._old_rows}
        values = _concat([_taken(self._column[name], rows) for name, rows in wanted.items()])
        raw = _concat([_taken(self._column["key"], rows) for rows in wanted.values()])
        decoded = decode_rows(table, columns, raw, values)
        for bad, reason in decoded.errors.items():
            new = bad < len(self._new_rows)
            row = self._new_rows[bad] if new else self._old_rows[bad - len(self._new_rows)]
            self._undecodable(int(row), reason)
        if keys:
            return decoded.batch, tuple(decoded.batch.column(columns.index(column)) for column in keys)
        handles, present = int_handles(raw)
        return decoded.batch, (pa.array(handles, mask=~present),)

    def _undecodable(self, row: int, reason: str) -> None:
        commit_ts, physical_id, key = (self._column[name][row].as_py() for name in ("commit_ts", "table_id", "key"))
        name = f"{self._version.database}.{self._version.table.name}"
        self.barriers.append(Barrier(commit_ts, name, physical_id, key, reason))


def _taken(values: pa.Array, rows: Ints) -> pa.Array:
    """`values` at distinct `rows`; no copy where those are all of them in their order."""
    if len(rows) == len(values) and (np.diff(rows) == 1).all():
        return values
    return values.take(pa.array(rows))


def _concat(arrays: Sequence[pa.Array]) -> pa.Array:
    filled = [array for array in arrays if len(array)]
    return filled[0] if len(filled) == 1 else pa.concat_arrays(arrays)


def _chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
