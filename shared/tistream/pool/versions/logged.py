"""Reads changes from segments alone, each with the value before it. Runs have no old values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tistream.format.segment import SCHEMA
from tistream.model.ts import Window
from tistream.pool.versions import plan, tail
from tistream.pool.versions.plan import IndexShard, TableRange
from tistream.pool.versions.reader import Reader


def logged_changes(
    shards: Sequence[IndexShard], reader: Reader, window: Window, wanted: TableRange
) -> Iterator[pa.Table]:
    """Read every change in `window` of the keys in `wanted` that the pool's segments have, also those that are in runs
    too. Where retention has dropped segments, their changes are missing (IndexShard.logged_ts).

    Args:
        shards: the tenant's pool, in key order.
        window: the commit_ts of the changes.
        wanted: keys to read.

    Yields:
        Tables of segment.SCHEMA, at most one for each row group, in no order, never empty.

    Raises:
        NotFoundYet: an object is gone; begin again with newer shards.
        CorruptObject, Unavailable.
    """
    for shard in shards:
        clipped = wanted.clip(shard.span)
        if clipped is None:
            continue
        parts = plan.groups_with_changes(shard, window, clipped.table_id)
        coming = reader.open_segments([(part.segment, part.index) for part in parts])
        for part, opened in zip(parts, coming, strict=True):
            inside = tail.rows_inside(opened.read(("key", "commit_ts")), part.window, clipped.span)
            if len(inside):
                yield opened.read(SCHEMA.names).take(pa.array(inside))
