"""Files in any order, keys cut anywhere, ticks and crashes at any moment: the pool is what the oracle says.

The sorter's own tick, kernel and formats, on an in-memory object store (tests/support/simulation.py).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from support import golden
from support.effort import cases, examples
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
    simulation = Simulation(loaded, spans(loaded, tasks, seed), seed)
    simulation.run(ORDERS[order](loaded.files, seed), tick_share=tick_share)
    assert simulation.progress_ts == loaded.end_ts
    assert_frame_equal(simulation.pool(), wanted(loaded.name))
    assert simulation.pending_rows() == 0


@pytest.mark.parametrize(
    ("name", "order", "tasks"),
    cases(  # each takes half a minute of processor time
        [("everything", "any", 5)],
        [
            *(("everything", order, tasks) for order in ORDERS for tasks in (1, 5, 16) if (order, tasks) != ("any", 5)),
            *(("large", "any", tasks) for tasks in (1, 5)),
        ],
    ),
)
def test_the_pool_is_what_the_oracle_says(name: str, order: str, tasks: int) -> None:
    check(golden.load(name), order, tasks, seed=tasks, tick_share=0.2)


@pytest.mark.parametrize(("tasks", "seed", "share"), cases([], [(11, 1966, 0.7263133523548599)]))
def test_pieces_of_a_part_without_rows_are_left(tasks: int, seed: int, share: float) -> None:
    """An example that hypothesis once found."""
    check(golden.load("everything"), "any", tasks, seed, share)


@given(
    order=st.sampled_from(sorted(ORDERS)),
    tasks=st.integers(1, 24),
    seed=st.integers(0, 2**32),
    tick_share=st.floats(0.02, 0.8),
)
@settings(max_examples=examples(4, few=1), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_order_any_cut_any_moment(order: str, tasks: int, seed: int, tick_share: float) -> None:
    check(golden.load("everything"), order, tasks, seed, tick_share)


# Repeated contents too are shown with real files by tests/e2e/test_e2e_arrival.py.
@pytest.mark.parametrize("tasks", cases([], [7]))
def test_contents_repeated_in_later_files_change_nothing(tasks: int) -> None:
    loaded = golden.load("everything")
    simulation = Simulation(loaded, spans(loaded, tasks, seed=1), seed=1)
    simulation.run(golden.with_repeated_contents(loaded.files, seed=1))
    assert simulation.progress_ts == loaded.end_ts
    assert_frame_equal(simulation.pool(), wanted(loaded.name))
