"""Computes the ts from which on TiStream knows every row of a table, also rows from before it began (docs/backfill.md).
Pure, except that it reads the schema history."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tistream.model.base_cover import Cover, Hole, base_ts_of, clipped, holes
from tistream.model.span import KeySpan
from tistream.pool.versions.plan import IndexShard, records_of
from tistream.read.source import TenantSource


def complete_from(source: TenantSource, shards: Sequence[IndexShard], physical_ids: Iterable[int]) -> int | Hole:
    """The ts from which on every row of these physical ids can be read: the highest base_ts of the shards that have
    keys of theirs, and of the bases that count; 0: from the beginning of the pool on.

    A table id that is older than the pool needs bases (tistream.model.base_cover) that cover all its record keys. If
    some keys have no base, the first such span is returned as a Hole. A base below a shard's begins_ts does not count,
    because changes above the base are gone. A table id that is younger than the pool was empty when it was created.
    `shards`: the tenant's pool, in key order.
    """
    highest = 0
    for one in physical_ids:
        span = records_of(one).span
        over = _overlapping(shards, span)
        highest = max(highest, *(shard.base_ts for shard in over), 0)
        if not source.older_than([one], max((shard.begins_ts for shard in over), default=0)):
            continue
        cover: Cover = tuple(base for shard in over for base in shard.cover if base.base_ts >= shard.begins_ts)
        found = base_ts_of(cover, [span])
        if isinstance(found, Hole):
            return found
        highest = max(highest, found)
    return highest


def known_parts(shards: Sequence[IndexShard], physical_ids: Iterable[int]) -> tuple[int, int]:
    """Count what backfills have done for these physical ids. Returns (number of spans whose rows are known, number of
    gaps between them)."""
    known = missing = 0
    for one in physical_ids:
        span = records_of(one).span
        cover: Cover = tuple(base for shard in _overlapping(shards, span) for base in shard.cover)
        known += len(clipped(cover, span))
        missing += sum(1 for _ in holes(cover, [span]))
    return known, missing


def _overlapping(shards: Sequence[IndexShard], span: KeySpan) -> list[IndexShard]:
    first = max(0, bisect_right(shards, span.start, key=lambda shard: shard.span.start) - 1)
    out = []
    for shard in shards[first:]:
        if span.end and shard.span.start >= span.end:
            break
        if shard.span.overlaps(span):
            out.append(shard)
    return out
