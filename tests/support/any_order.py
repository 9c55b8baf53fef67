"""Files in any order, keys cut anywhere, ticks and crashes at any moment: the pool is what the oracle says.

The sorter's own tick, kernel and formats, on an in-memory object store (simulation.py).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence

import polars as pl
from polars.testing import assert_frame_equal

from support import golden
from support.golden import Delivery, GoldenSet
from support.simulation import Simulation
from tistream.model.span import WHOLE, KeySpan

ORDERS: dict[str, Callable[[Sequence[Delivery], int], Sequence[Delivery]]] = {
    "as-arrived": lambda files, seed: files,
    "across-stores": golden.shuffled_across_stores,
    "any": golden.shuffled,
}


@functools.cache
def wanted(name: str) -> pl.DataFrame:
    """The committed rows of a golden set, which the pool must have."""
    loaded = golden.load(name)
    return golden.committed_rows(loaded.name)


def spans(loaded: GoldenSet, count: int, seed: int) -> list[KeySpan]:
    """The key space cut at keys that occur, some of them shortened: inside tables, inside `m`, between tables."""
    if count == 1:
        return [WHOLE]
    rng = random.Random(seed)
    keys = wanted(loaded.name)["key"].to_list()
    bounds = sorted({key[: rng.choice([9, 11, 19, len(key)])] for key in rng.sample(keys, count - 1)})
    return [KeySpan(start, end) for start, end in zip([b"", *bounds], [*bounds, b""], strict=True)]


def check(loaded: GoldenSet, order: str, tasks: int, seed: int, tick_share: float) -> None:
    """Run the files in the given order through this number of tasks, and compare the pool with the oracle."""
    simulation = Simulation(loaded, spans(loaded, tasks, seed), seed)
    simulation.run(ORDERS[order](loaded.files, seed), tick_share=tick_share)
    assert simulation.progress_ts == loaded.end_ts
    assert_frame_equal(simulation.pool(), wanted(loaded.name))
    assert simulation.pending_rows() == 0
