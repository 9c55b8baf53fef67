"""Reads the net changes of a range of keys: of each key that changed in a window, its newest version there and its
value before the window.

A segment has, with each change, the value before it. If the window's segments are small, they are sorted by key, and
nothing else is read. Otherwise the changed keys are found by merging runs, and their old values are looked up in older
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.format.segment import SCHEMA
from tistream.model import base_cover
from tistream.model.ts import Window
from tistream.pool.versions import merge, plan, tail
from tistream.pool.versions.lookup import PLACES, newest_at
from tistream.pool.versions.plan import GroupInWindow, IndexShard, TableRange
from tistream.pool.versions.reader import Reader
from tistream.pool.versions.scan import read_range
from tistream.pool.versions.tail import Stamps


def read_net(
    shards: Sequence[IndexShard], reader: Reader, window: Window, ranges: Sequence[TableRange]
) -> Iterator[pa.Table]:
    """Read the net changes in `window` of the keys in `ranges`, in the order of `ranges` and keys.

    Args:
        shards: the tenant's pool, in key order.
        window: its low end is at least 1; all rows of the tables must be known as of that ts.
        ranges: keys to read.

    Yields:
        Tables of segment.SCHEMA with a row for each key that changed, never empty: the newest version in the window,
        and in `old_value` the value as of window.low, which may equal the new one.

    Raises:
        NotFoundYet: an object is gone; plan again from newer shards, after the last key that was returned.
        CorruptObject, Unavailable.
    """
    for wanted in ranges:
        for shard in shards:
            clipped = wanted.clip(shard.span)
            if clipped is None:
                continue
            parts = plan.groups_logged(shard, window, clipped.table_id)
            if parts is None:
                yield from _from_runs(shard, reader, window, clipped)
            else:
                yield from _from_segments(shard, reader, window, clipped, parts)


def _from_runs(shard: IndexShard, reader: Reader, window: Window, wanted: TableRange) -> Iterator[pa.Table]:
    for rows in read_range([shard], reader, window, [wanted], deletes=True):
        yield _table(rows, newest_at([shard], reader, rows.select(PLACES.names), window.low).column("value"))


def _from_segments(
    shard: IndexShard, reader: Reader, window: Window, wanted: TableRange, parts: Sequence[GroupInWindow]
) -> Iterator[pa.Table]:
    backfilled = bool(base_cover.clipped(shard.cover, wanted.span))
    for found in tail.sorted_stamps(reader, parts, wanted.span, every=True):
        firsts = np.flatnonzero(merge.first_of_each(merge.key_array(found.table)))
        newest, oldest = found.take(firsts), found.take(np.append(firsts[1:], len(found)) - 1)
        start = 0
        for chunk in tail.chunks(newest):
            rows = chunk.whole(reader)
            before = oldest.slice(start, len(chunk))
            yield _table(rows, _old_values(shard, reader, window.low, rows, before, backfilled=backfilled))
            start += len(chunk)


def _old_values(
    shard: IndexShard, reader: Reader, ts: int, rows: pa.Table, oldest: Stamps, *, backfilled: bool
) -> pa.ChunkedArray:
    """The values of the keys of `rows` as of `ts`: the old value in the oldest change above `ts` (`oldest`). A change
    without an old value has inserted the row. With `backfilled` that is uncertain, because a log backup that was read
    before the backfill has no old values of rows from before the log; then the value is looked up."""
    values = one_array(oldest.columns(reader, ["old_value"]).column("old_value"))
    unknown = np.flatnonzero(pc.is_null(values)) if backfilled else np.empty(0, np.int64)
    if not len(unknown):
        return pa.chunked_array([values])
    places = rows.select(PLACES.names).take(pa.array(unknown))
    looked_up = one_array(newest_at([shard], reader, places, ts).column("value"))
    at = np.arange(len(values))
    at[unknown] = len(values) + np.arange(len(unknown))
    return pa.chunked_array([pa.concat_arrays([values, looked_up]).take(pa.array(at))])


def _table(rows: pa.Table, old: pa.ChunkedArray) -> pa.Table:
    columns = {name: rows.column(name) for name in rows.column_names} | {"old_value": old}
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)
