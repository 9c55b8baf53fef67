"""Sorts the versions in segments that are not in a run yet, so that they can be merged with runs.

Segments are sorted by commit_ts. So the keys and timestamps of their rows are read first and sorted. Values are read
later, for some keys at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.format.run import SCHEMA
from tistream.format.segment import SCHEMA as SEGMENT_SCHEMA
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions import merge
from tistream.pool.versions.merge import Ints
from tistream.pool.versions.plan import GroupInWindow
from tistream.pool.versions.reader import Reader

ROWS_MAX = 1 << 20  # stamps held at once: a range of keys with more is cut
CHUNK_ROWS = 1 << 18  # most rows whose values are held at once
CHUNK_BYTES = 16 << 20  # about the most bytes of values that are held at once
_UNPACKED = 4  # about the bytes of decoded values for each stored byte
_LOCAL = ("value", "txn_source")


@dataclass(frozen=True, slots=True)
class Stamps:
    """The stamps of rows in several row groups of segments: their keys and timestamps, without their values. Row i is
    row `row[i]` of `parts[part[i]]`."""

    parts: Sequence[GroupInWindow]
    table: pa.Table  # the columns merge.STAMPS
    part: Ints
    row: Ints

    def __len__(self) -> int:
        return len(self.part)

    def take(self, at: Ints) -> Stamps:
        """The rows with these indexes."""
        return Stamps(self.parts, self.table.take(pa.array(at)), self.part[at], self.row[at])

    def slice(self, start: int, count: int) -> Stamps:
        """Select `count` consecutive rows, beginning with row `start`."""
        rows = slice(start, start + count)
        return Stamps(self.parts, self.table.slice(start, count), self.part[rows], self.row[rows])

    def row_bytes(self) -> npt.NDArray[np.float64]:
        """The decoded bytes of each row, estimated by the average row of its segment."""
        weights = np.array([part.segment.size / max(part.segment.rows, 1) for part in self.parts] or [0.0])
        each: npt.NDArray[np.float64] = weights[self.part] * _UNPACKED
        return each

    def whole(self, reader: Reader) -> pa.Table:
        """Read the values, and return the complete rows (run.SCHEMA)."""
        values = self.columns(reader, ("table_id", *_LOCAL))
        columns = {name: table.column(name) for table in (values, self.table) for name in table.column_names}
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def columns(self, reader: Reader, names: Sequence[str]) -> pa.Table:
        """Read the columns `names` of segment.SCHEMA for these rows."""
        found, at = [], []
        numbers = np.unique(self.part).tolist()
        coming = reader.open_segments([(self.parts[one].segment, self.parts[one].index) for one in numbers])
        for number, opened in zip(numbers, coming, strict=True):
            mine = np.flatnonzero(self.part == number)
            found.append(opened.read(names).take(pa.array(self.row[mine])))
            at.append(mine)
        if not found:
            return SEGMENT_SCHEMA.empty_table().select(list(names))
        values = pa.concat_tables(found)
        if len(found) > 1:
            back = np.empty(len(self), np.int64)
            back[np.concatenate(at)] = np.arange(len(self))
            values = values.take(pa.array(back))
        return values


def stamps_of(reader: Reader, parts: Sequence[GroupInWindow], span: KeySpan) -> Iterator[Stamps]:
    """Read the keys and timestamps of row groups, in order. Yields the rows with keys in `span` and a commit_ts in the
    group's window."""
    coming = reader.open_segments([(part.segment, part.index) for part in parts])
    for number, (part, opened) in enumerate(zip(parts, coming, strict=True)):
        table = opened.read(merge.STAMPS)
        rows = rows_inside(table, part.window, span)
        if len(rows):
            yield Stamps(parts, table.take(pa.array(rows)), np.full(len(rows), number), rows)


def rows_inside(table: pa.Table, window: Window, span: KeySpan) -> Ints:
    """The indexes of the rows of `table`, which has the columns `key` and `commit_ts`, that are in the window and the
    span."""
    commit_ts = merge.ints(table, "commit_ts")
    inside = (commit_ts > window.low) & (commit_ts <= window.high)
    keys = merge.key_array(table)
    inside &= pc.greater_equal(keys, pa.scalar(span.start, pa.binary())).to_numpy(zero_copy_only=False)
    if span.end:
        inside &= pc.less(keys, pa.scalar(span.end, pa.binary())).to_numpy(zero_copy_only=False)
    return np.flatnonzero(inside)


def sorted_stamps(
    reader: Reader, parts: Sequence[GroupInWindow], span: KeySpan, *, every: bool, rows_max: int = ROWS_MAX
) -> Iterator[Stamps]:
    """Read and sort the rows of `parts` with keys in `span` as a merge needs them: for each key the newest version, or
    with `every` all versions. Yields one range of keys after the other, each of about `rows_max` rows or fewer. For
    each range, the keys of all parts are read again."""
    start: bytes | None = span.start
    while start is not None and parts:
        found, start = _one_range(reader, parts, KeySpan(start, span.end), every=every, rows_max=rows_max)
        if found is not None:
            yield found


def _one_range(
    reader: Reader, parts: Sequence[GroupInWindow], span: KeySpan, *, every: bool, rows_max: int
) -> tuple[Stamps | None, bytes | None]:
    """Read the first range of `span` that has no more than about `rows_max` rows. Returns its sorted rows, and the key
    at which the next range starts, or None if this is the last range."""
    held: list[Stamps] = []
    rows = 0
    cut: bytes | None = None
    for found in stamps_of(reader, parts, span):
        held.append(found if cut is None else _below(found, cut))
        rows += len(held[-1])
        if rows <= rows_max:
            continue
        whole = _ordered(parts, held, every=every)
        keys = merge.key_array(whole.table)
        middle = keys[len(keys) // 2].as_py()
        if len(keys) > rows_max and middle > keys[0].as_py():
            cut = middle
            whole = whole.slice(0, merge.below(keys, middle))
        held, rows = [whole], len(whole)
    return (_ordered(parts, held, every=every) if rows else None), cut


def _below(found: Stamps, key: bytes) -> Stamps:
    keep = pc.less(merge.key_array(found.table), pa.scalar(key, pa.binary()))
    return found.take(np.flatnonzero(keep.to_numpy(zero_copy_only=False)))


def _ordered(parts: Sequence[GroupInWindow], held: Sequence[Stamps], *, every: bool) -> Stamps:
    table = pa.concat_tables([one.table for one in held])
    part = np.concatenate([one.part for one in held])
    row = np.concatenate([one.row for one in held])
    whole = pa.table([one_array(column) for column in table.columns], schema=table.schema)
    joined = Stamps(parts, whole, part, row)
    order = merge.ordered(joined.table)
    keys = merge.key_array(joined.table)
    if not every:
        order = order[merge.first_of_each(keys.take(pa.array(order)))]
    return joined.take(order)


def chunks(stamps: Stamps) -> Iterator[Stamps]:
    """Cut sorted rows into chunks whose values fit into CHUNK_BYTES, estimated from the average row of their segments.
    The versions of one key may be in two chunks."""
    start, total = 0, np.cumsum(stamps.row_bytes())
    while start < len(stamps):
        done = 0.0 if start == 0 else float(total[start - 1])
        fits = int(np.searchsorted(total, done + CHUNK_BYTES, side="right")) - start
        count = min(max(1, fits), CHUNK_ROWS)
        yield stamps.slice(start, count)
        start += count
