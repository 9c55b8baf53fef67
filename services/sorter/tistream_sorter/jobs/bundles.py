"""Distributes shards over Spark tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tistream_sorter.jobs.shard import Shard


def bundles(shards: Sequence[Shard], count: int) -> list[list[Shard]]:
    """Distribute shards over at most `count` Spark tasks: the heaviest first, each to the Spark task with the least
    work so far."""
    out: list[list[Shard]] = [[] for _ in range(min(count, len(shards)))]
    weights = [0] * len(out)
    for shard in sorted(shards, key=lambda shard: -shard.weight):
        lightest = weights.index(min(weights))
        out[lightest].append(shard)
        weights[lightest] += shard.weight
    return out
