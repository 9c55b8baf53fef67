"""Yields the net changes of a table as events, in the order in which they are sent, from any position on.

The order within a table is that of raw keys, and of one raw key the delete comes first. If several raw keys may belong
to the same values of the key columns, the rows are joined in memory. Above PAIRED_ROWS or PAIRED_BYTES there are two
passes over the keys instead: all deletes come before all puts, so that a row which moved is a delete and then a put.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.cursor import Place
from tistream.read.events import Events, Rows
from tistream.read.plan import OP_DELETE, OP_PUT
from tistream.read.row_events import Barrier
from tistream_api.points.net.moved_rows import paired
from tistream_api.points.net.net_changes import TableComparison, changed, rendered

PAIRED_ROWS = 50_000
PAIRED_BYTES = 16 << 20
_TWO_PASSES = 4  # added to `step` in the second of two passes


@dataclass(frozen=True, slots=True)
class NetPosition:
    """The position up to which the events of a table have been sent: the raw key `key`, and the event of it that `step`
    names. `step` is 0 before the first event, 1 after a delete, 2 after a put; in the second pass over the keys,
    _TWO_PASSES is added."""

    step: int = 0
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class NetBatch:
    """Some events of one table, in order, with the raw key of each in `raw`. `second`: they belong to the second of two
    passes over the keys. If `barrier` is set, the row after them cannot be decoded."""

    events: Events
    raw: pa.Array
    second: bool
    barrier: Barrier | None = None

    def sent(self, index: int) -> NetPosition:
        """The position after the event at `index`."""
        step = 1 if int(self.events.op[index]) == OP_DELETE else 2
        return NetPosition(step + (_TWO_PASSES if self.second else 0), self.raw[index].as_py())


def net_events(reads: PoolReads, part: TableComparison, sent: NetPosition) -> Iterator[NetBatch]:
    """Yield the events of a table after the position `sent`. A batch with a barrier is the last one."""
    if part.moves:
        whole = _whole(reads, part)
        if whole is not None:
            yield from _one_set(whole, sent)
            return
        for op in (OP_DELETE, OP_PUT):
            second = op == OP_PUT
            if sent.step > _TWO_PASSES and not second:
                continue
            resumed = sent if second == (sent.step > _TWO_PASSES) else NetPosition()
            yield from _streamed(reads, part, resumed, op, second=second)
        return
    yield from _streamed(reads, part, sent, None, second=False)


def _streamed(
    reads: PoolReads, part: TableComparison, sent: NetPosition, op: int | None, *, second: bool
) -> Iterator[NetBatch]:
    for rows in changed(reads, part, sent.key):
        sets, barrier = rendered(part, rows, op)
        batch = _after(_ordered(sets, second=second), sent)
        yield NetBatch(batch.events, batch.raw, second, barrier)
        if barrier is not None:
            return


def _whole(reads: PoolReads, part: TableComparison) -> tuple[list[Rows], Barrier | None] | None:
    """All events of the table, as sets in no order, and the row after them that cannot be decoded, if there is one;
    None if there are too many events to hold in memory."""
    sets: list[Rows] = []
    count = size = 0
    for rows in changed(reads, part, b""):
        count += len(rows)
        size += sum(pc.sum(pc.binary_length(rows.column(name))).as_py() or 0 for name in ("value", "old_value"))
        if count > PAIRED_ROWS or size > PAIRED_BYTES:
            return None
        found, barrier = rendered(part, rows)
        sets += found
        if barrier is not None:
            return sets, barrier
    return sets, None


def _one_set(whole: tuple[list[Rows], Barrier | None], sent: NetPosition) -> Iterator[NetBatch]:
    sets, barrier = whole
    if sets and barrier is None:
        sets = [paired(sets)]
    batch = _after(_ordered(sets, second=False), sent)
    yield NetBatch(batch.events, batch.raw, second=False, barrier=barrier)


def _ordered(sets: Sequence[Rows], *, second: bool) -> NetBatch:
    """Order events by raw key, deletes first, and make a batch of them."""
    sets = [one for one in sets if len(one)]
    raw = pa.concat_arrays([pa.array([], pa.binary()), *(one.raw.cast(pa.binary()) for one in sets)])
    numbers = [np.concatenate([np.empty(0, np.int64), *(getattr(one, name) for one in sets)])
               for name in ("commit_ts", "start_ts", "op")]  # fmt: skip
    source = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    at = np.concatenate([np.empty(0, np.int64), *(np.arange(len(one)) for one in sets)])
    ids = np.array([one.version.table.id for one in sets], np.int64)[source]
    place = np.full(len(at), int(Place.ROW))
    events = Events(tuple(sets), numbers[0], place, numbers[1], ids, numbers[2], source, at)
    if len(sets) == 1:  # its rows were in the order of keys, and usually their images are
        order = np.argsort(2 * np.where(sets[0].op == OP_DELETE, sets[0].old_at, sets[0].new_at) + sets[0].op)
        ordered = raw.take(pa.array(order))
        if _ascend(ordered, numbers[2][order]):
            return NetBatch(events.chosen(order), ordered, second)
    frame = pl.DataFrame({"key": pl.from_arrow(raw), "op": numbers[2]})
    order = frame.select(pl.arg_sort_by(frame.columns).cast(pl.Int64)).to_series().to_numpy()
    return NetBatch(events.chosen(order), raw.take(pa.array(order)), second)


def _ascend(keys: pa.Array, op: Int64s) -> bool:
    """Whether events are in the order of raw keys, and for equal keys the delete is before the put."""
    before, after = keys.slice(0, max(len(keys) - 1, 0)), keys.slice(1)
    below = pc.less(before, after).to_numpy(zero_copy_only=False)
    same = np.flatnonzero(~below)
    equal = pc.equal(before.take(pa.array(same)), after.take(pa.array(same))).to_numpy(zero_copy_only=False)
    return bool(equal.all() and (op[same] < op[same + 1]).all())


def _after(batch: NetBatch, sent: NetPosition) -> NetBatch:
    if not sent.step:
        return batch
    op = OP_DELETE if sent.step % _TWO_PASSES == 1 else OP_PUT
    key = pa.scalar(sent.key, pa.binary())
    above = pc.greater(batch.raw, key).to_numpy(zero_copy_only=False)
    same = pc.equal(batch.raw, key).to_numpy(zero_copy_only=False)
    keep = np.flatnonzero(above | (same & (batch.events.op > op)))
    return NetBatch(batch.events.chosen(keep), batch.raw.take(pa.array(keep)), batch.second)
