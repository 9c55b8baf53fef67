"""Cutting a task's span into key-range shards, one Spark task each. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tistream.format.manifest import PendingPart
from tistream.model.span import KeySpan
from tistream_sorter.jobs.shard import Shard, ShardFile

SPANS_MAX = 64  # beyond, one that holds them all


def cut(span: KeySpan, files: Sequence[ShardFile], shards_max: int, bytes_min: int) -> list[KeySpan]:
    """At most `shards_max` neighbouring spans of about equal bytes, cut at the lowest keys of row groups.

    One span where the bytes do not fill two shards of `bytes_min`, or where row groups have no key statistics.
    """
    groups = [group for file in files for group in file.wanted_groups]
    total = sum(group.length for group in groups)
    count = min(shards_max, total // max(bytes_min, 1))
    if count < 2 or any(group.key_min is None for group in groups):
        return [span]
    weighted = sorted((group.key_min or b"", group.length) for group in groups)
    bounds: list[bytes] = []
    seen = 0
    for key, length in weighted:
        if seen >= total * (len(bounds) + 1) / count and key in span and key > (bounds[-1] if bounds else span.start):
            bounds.append(key)
        seen += length
    edges = [span.start, *bounds, span.end]
    return [KeySpan(start, end) for start, end in itertools.pairwise(edges)]


def touched(span: KeySpan, files: Sequence[ShardFile], parts: Sequence[PendingPart]) -> list[KeySpan]:
    """Spans, a few, that hold every key of `span` which the files' row groups and the pending parts may have."""
    bounds: list[tuple[bytes, bytes]] = []
    for file in files:
        for group in file.wanted_groups:
            if group.key_min is None or group.key_max is None:
                return [span]
            bounds.append((group.key_min, group.key_max + b"\x00"))
    if any(not part.span.end for part in parts):
        return [span]
    bounds += [(part.span.start, part.span.end) for part in parts]
    if len(bounds) > SPANS_MAX:
        bounds = [(min(low for low, _ in bounds), max(high for _, high in bounds))]
    clipped = [KeySpan(low, high).clip(span) for low, high in bounds]
    return [piece for piece in clipped if piece is not None]


def bundles(shards: Sequence[Shard], count: int) -> list[list[Shard]]:
    """Spread shards over at most `count` Spark tasks by weight, heaviest first."""
    out: list[list[Shard]] = [[] for _ in range(min(count, len(shards)))]
    weights = [0] * len(out)
    for shard in sorted(shards, key=lambda shard: -shard.weight):
        lightest = weights.index(min(weights))
        out[lightest].append(shard)
        weights[lightest] += shard.weight
    return out
