"""What becomes of pending rows, as random tests set it: values point, segments are written early and large parts are
left alone in small worlds too."""

from __future__ import annotations

import random

from tistream_sorter.jobs.shard import StorageRules
from tistream_sorter.upkeep.shards import CutRules

# Every value points, every row above the watermark is sealed, every part is large, and chunks hold one row group.
EXTREME = CutRules(1, 1 << 30, rows_small=0, store=StorageRules(1, 1, 1))


def any_rules(rng: random.Random, shards_max: int, shard_bytes_min: int) -> CutRules:
    """Rules for one tick or one world."""
    store = StorageRules(
        point_bytes_min=rng.choice([1, 200, 5_000, 256 << 10]),
        seal_bytes_min=rng.choice([1, 200, 5_000, 1 << 20]),
        chunk_bytes=rng.choice([1, 20_000, 16 << 20]),
    )
    return CutRules(
        shards_max,
        shard_bytes_min,
        shard_work_max=rng.choice([1 << 14, 1 << 17, 128 << 20]),
        rows_small=rng.choice([0, 1, 20, 16_384]),
        store=store,
    )
