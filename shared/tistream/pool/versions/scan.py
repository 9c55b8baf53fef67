"""Reads the versions of a range of keys in key order. It merges the runs with the newer rows in segments.

Each run or segment is read piece by piece, so memory does not grow with the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.format.run import SCHEMA, RunRef
from tistream.format.segment import OP_DELETE
from tistream.model.ts import Window
from tistream.pool.versions import merge, plan, tail
from tistream.pool.versions.base_keys import base_keys
from tistream.pool.versions.merge import Ints
from tistream.pool.versions.plan import IndexShard, TableRange
from tistream.pool.versions.reader import OpenedGroups, OpenedRun, Reader
from tistream.pool.versions.tail import Stamps

FILL_ROWS = 1 << 15  # rows of a run that are read at once
FILL_BYTES = 8 << 20  # the same, in unpacked bytes
HELD_BYTES = 32 << 20  # about the most for all runs of a shard together, although each run holds at least one row group
_VALUES = ("table_id", "value", "txn_source")


def read_range(
    shards: Sequence[IndexShard],
    reader: Reader,
    window: Window,
    ranges: Sequence[TableRange],
    *,
    deletes: bool = False,
    every: bool = False,
    columns: Sequence[str] = tuple(SCHEMA.names),
) -> Iterator[pa.Table]:
    """Read the newest version of each key with commit_ts in `window`. The keys are those in `ranges`; the result has
    the order of `ranges` and keys.

    Args:
        shards: the tenant's pool, in key order.
        window: (0, T] for a read as of T; the runs and segments must hold every version in it.
        ranges: keys to read.
        deletes: also return keys whose newest version is a delete (op 2, value null).
        every: return every version in the window, newest first; implies `deletes`.
        columns: the columns of run.SCHEMA to return.

    Yields:
        Tables of these columns, with some 10,000 rows each, never empty.

    Raises:
        NotFoundYet: an object is gone; plan again from newer shards, after the last key that was returned.
        CorruptObject, Unavailable.
    """
    for wanted in ranges:
        for shard in shards:
            clipped = wanted.clip(shard.span)
            if clipped is not None:
                merging = _Merge(shard, reader, window, clipped, columns, every=every)
                yield from merging.tables(deletes=deletes or every)


def measure_range(
    shards: Sequence[IndexShard], reader: Reader, window: Window, wanted: TableRange
) -> Iterator[tuple[Sequence[Any], float]]:
    """The keys of the rows that `read_range` returns, in order, without reading their values. Yields sequences of keys
    (Arrow scalars), each with the bytes of its rows, estimated by the average of their row groups. If only a base run
    has rows, the keys are not read either until the caller takes one. Raises the errors of `read_range`."""
    for shard in shards:
        clipped = wanted.clip(shard.span)
        if clipped is not None:
            yield from _Merge(shard, reader, window, clipped, (), every=False).measured()


@dataclass(slots=True)
class _Values:
    """The value columns of rows that were read together. They are decoded when the first of the rows is needed."""

    read: Callable[[], pa.Table]
    table: pa.Table | None = None

    def take(self, places: Ints) -> pa.Table:
        """The value columns of the rows with the indexes `places`."""
        if self.table is None:
            self.table = self.read()
        if len(places) and places[-1] - places[0] == len(places) - 1 and (np.diff(places) == 1).all():
            return self.table.slice(int(places[0]), len(places))
        return self.table.take(pa.array(places))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Sorted rows of one input of a merge. `stamps` has their keys and timestamps; the values of row i are at row
    `at[i]` of `values`."""

    stamps: pa.Table
    at: Ints
    values: _Values
    row_bytes: float  # of a row, about

    def __len__(self) -> int:
        return len(self.at)

    def split(self, count: int) -> tuple[_Piece, _Piece]:
        """Split the piece after `count` rows. Returns (the first rows, the rest)."""
        return (
            replace(self, stamps=self.stamps.slice(0, count), at=self.at[:count]),
            replace(self, stamps=self.stamps.slice(count), at=self.at[count:]),
        )

    def take(self, rows: Ints) -> pa.Table:
        """The value columns of the rows with the indexes `rows`."""
        return self.values.take(self.at[rows])


@dataclass(slots=True)
class _Source:
    """One sorted input of a merge, such as a run: the pieces that are in memory, and an iterator that reads those that
    follow."""

    coming: Iterator[tuple[_Piece, bytes]]
    held: list[_Piece] = field(default_factory=list)
    reached: bytes = b""  # every row with a key below it is in memory, or was removed from memory
    more: bool = True

    def fill(self) -> None:
        """Read the next piece of this input into memory, if there is one."""
        found = next(self.coming, None)
        if found is None:
            self.more = False
            return
        piece, self.reached = found
        if len(piece):
            self.held.append(piece)

    def pop_below(self, bound: bytes | None) -> list[_Piece]:
        """Remove the rows with keys below `bound` (None: all rows) from memory, and return them."""
        popped: list[_Piece] = []
        while self.held:
            piece = self.held[0]
            count = len(piece) if bound is None else merge.below(merge.key_array(piece.stamps), bound)
            if count < len(piece):
                if count:
                    head, self.held[0] = piece.split(count)
                    popped.append(head)
                break
            popped.append(self.held.pop(0))
        return popped


class _Merge:
    """Merges the inputs of one shard over one range of keys."""

    def __init__(
        self,
        shard: IndexShard,
        reader: Reader,
        window: Window,
        wanted: TableRange,
        columns: Sequence[str],
        *,
        every: bool,
    ) -> None:
        self._reader, self._window, self._wanted, self._every = reader, window, wanted, every
        self._schema = pa.schema([SCHEMA.field(name) for name in columns])
        self._valued = [name for name in _VALUES if name in columns]
        runs = plan.runs_of(shard, window, wanted.span)
        self._fill_bytes = min(FILL_BYTES, HELD_BYTES // max(1, len(runs)))
        self._first = [objects[0] for objects in runs]
        self._opened: dict[str, OpenedRun] = {}  # of `_first`, until their sources begin
        self._fetched: dict[str, OpenedGroups] = {}  # their first row groups
        parts = plan.groups_in_window(shard, window, [wanted.table_id])
        self._sources = [_Source(chain.from_iterable(map(self._run_pieces, objects))) for objects in runs]
        if parts:
            self._sources.insert(0, _Source(self._tail_pieces(parts)))
        self._base = plan.lone_base(runs, window) if not parts else ()

    def tables(self, *, deletes: bool) -> Iterator[pa.Table]:
        """Yield the merged rows, in key order. Rows that are deletes are left out unless `deletes` is true."""
        if self._base:
            for run in self._base:
                yield from self._base_tables(run)
            return
        for popped, sources in self._popped():
            table = self._merged(popped, deletes=deletes, sources=sources)
            if len(table):
                yield table

    def measured(self) -> Iterator[tuple[Sequence[Any], float]]:
        """Yield the keys of the merged rows without deletes, in order: sequences of keys, each with the estimated bytes
        of its rows."""
        if self._base:
            for run in self._base:
                yield from base_keys(self._reader, run, self._wanted.span)
            return
        for popped, sources in self._popped():
            stamps, order = self._order(popped, deletes=False, sources=sources)
            if len(order):
                piece = np.repeat([one.row_bytes for one in popped], [len(one) for one in popped])
                yield merge.key_array(stamps).take(pa.array(order)), float(piece[order].sum())

    def _popped(self) -> Iterator[tuple[list[_Piece], int]]:
        """Yield, for one range of keys after the other, the pieces with its rows, and the number of sources that the
        pieces come from."""
        self._fetch_first()
        for source in self._sources:
            source.fill()
        while any(source.held or source.more for source in self._sources):
            bound = min((source.reached for source in self._sources if source.more), default=None)
            by_source = [found for source in self._sources if (found := source.pop_below(bound))]
            if by_source:
                yield [piece for found in by_source for piece in found], len(by_source)
            for source in self._sources:
                if source.more and source.reached == bound:
                    source.fill()

    def _fetch_first(self) -> None:
        """Fetch what every run begins with, at the same time: the footer of its first object, and the first row groups
        there."""
        opened = list(self._reader.open_runs(self._first))
        lots = [(one, some) for one in opened for some, _, _ in islice(self._fills(one), 1)]
        self._opened = {one.run.key: one for one in opened}
        self._fetched = {one.run.key: found for (one, _), found in zip(lots, self._reader.fetch(lots), strict=True)}

    def _order(self, popped: list[_Piece], *, deletes: bool, sources: int) -> tuple[pa.Table, Ints]:
        """Concatenate the stamps of the pieces. Returns them, and the indexes of the rows to return, in the order in
        which they are returned."""
        stamps = pa.concat_tables([piece.stamps for piece in popped])
        if sources == 1:  # its pieces follow one another
            order = merge.merged([stamps], every=self._every)
        else:
            order = merge.merged([piece.stamps for piece in popped], every=self._every)
        if not deletes:
            ops = stamps.column("op").to_numpy()
            order = order[ops[order] != OP_DELETE]
        return stamps, order

    def _merged(self, popped: list[_Piece], *, deletes: bool, sources: int) -> pa.Table:
        stamps, order = self._order(popped, deletes=deletes, sources=sources)
        if not len(order):
            return self._schema.empty_table()
        values = _in_order(popped, order) if sources > 1 else _one_after_another(popped, order)
        chosen = stamps if sources == 1 and len(order) == len(stamps) else stamps.take(pa.array(order))
        columns = {name: table.column(name) for table in (chosen, values) for name in table.column_names}
        return pa.table([columns[name] for name in self._schema.names], schema=self._schema)

    def _base_tables(self, run: RunRef) -> Iterator[pa.Table]:
        """Yield the rows of a base run's object. Nothing is above it, so their timestamps decide nothing."""
        (held,) = self._reader.open_runs([run])
        groups, span, names = held.groups, self._wanted.span, self._schema.names
        for some, _, _ in self._fills(held):
            (opened,) = self._reader.fetch([(held, some)])
            if groups.first_keys[some[0]] in span and groups.last_keys[some[-1]] in span:
                yield opened.read(names)
                continue
            keys, rows = merge.key_array(opened.read(("key",))), opened.read(names)
            start = merge.below(keys, span.start)
            end = merge.below(keys, span.end) if span.end else len(keys)
            if start < end:
                yield rows.slice(start, end - start)

    def _fills(self, opened: OpenedRun) -> Iterator[tuple[list[int], int, int]]:
        """Yield the row groups of an object that may have wanted rows, in lots that are read at once, and the rows and
        bytes of each lot."""
        groups, span, window = opened.groups, self._wanted.span, self._window
        chosen = [
            at
            for at, (first, last) in enumerate(zip(groups.first_keys, groups.last_keys, strict=True))
            if span.touches(first, last)
            and window.overlaps(int(groups.commit_ts_min[at]), int(groups.commit_ts_max[at]))
        ]
        while chosen:
            some: list[int] = []
            rows = size = 0
            while chosen and (not some or (rows < FILL_ROWS and size < self._fill_bytes)):
                at = chosen.pop(0)
                some.append(at)
                rows, size = rows + int(groups.rows[at]), size + int(groups.bytes[at])
            yield some, rows, size

    def _run_pieces(self, run: RunRef) -> Iterator[tuple[_Piece, bytes]]:
        held = self._opened.pop(run.key, None) or next(self._reader.open_runs([run]))
        span, window = self._wanted.span, self._window
        for some, rows, size in self._fills(held):
            opened = self._fetched.pop(run.key, None) or next(self._reader.fetch([(held, some)]))
            stamps = opened.read(merge.STAMPS)
            stamps = pa.table([one_array(column) for column in stamps.columns], schema=stamps.schema)
            keys = merge.key_array(stamps)
            start = merge.below(keys, span.start)
            end = merge.below(keys, span.end) if span.end else len(keys)
            inside = stamps.slice(start, end - start)
            at_rows = merge.newest_in(inside, window.low, window.high, every=self._every)
            counting = inside if len(at_rows) == len(inside) else inside.take(pa.array(at_rows))
            piece = _Piece(counting, at_rows + start, _Values(partial(opened.read, self._valued)), size / max(rows, 1))
            # Not the footer's last key: a group whose keys are too long for statistics has the bounds of its object.
            yield piece, keys[len(keys) - 1].as_py()

    def _tail_pieces(self, parts: Sequence[plan.GroupInWindow]) -> Iterator[tuple[_Piece, bytes]]:
        for found in tail.sorted_stamps(self._reader, parts, self._wanted.span, every=self._every):
            for chunk in tail.chunks(found):
                last = merge.key_array(chunk.table)[len(chunk) - 1].as_py()
                values, each = _Values(partial(self._whole, chunk)), float(chunk.row_bytes().sum()) / len(chunk)
                yield _Piece(chunk.table, np.arange(len(chunk)), values, each), last

    def _whole(self, chunk: Stamps) -> pa.Table:
        return chunk.columns(self._reader, self._valued)


def _one_after_another(popped: Sequence[_Piece], order: Ints) -> pa.Table:
    """The value columns of the rows at the indexes `order`, which ascend. Indexes count the rows of all pieces, one
    piece after the other."""
    begins = np.cumsum([0, *(len(piece) for piece in popped)])
    edges = np.searchsorted(order, begins)
    parts = zip(popped, begins, pairwise(edges), strict=False)
    return pa.concat_tables([piece.take(order[low:high] - begin) for piece, begin, (low, high) in parts if low < high])


def _in_order(popped: Sequence[_Piece], order: Ints) -> pa.Table:
    """The value columns of the rows at the indexes `order`, in any order. Indexes count the rows of all pieces, one
    piece after the other."""
    begins = np.cumsum([0, *(len(piece) for piece in popped)])
    number = np.searchsorted(begins, order, side="right") - 1
    found, back = [], []
    for at in np.unique(number).tolist():
        mine = np.flatnonzero(number == at)
        found.append(popped[at].take(order[mine] - begins[at]))
        back.append(mine)
    values = pa.concat_tables(found)
    if len(found) == 1:
        return values
    places = np.empty(len(order), np.int64)
    places[np.concatenate(back)] = np.arange(len(order))
    return values.take(pa.array(places))
