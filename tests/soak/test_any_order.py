"""Orders of arrival of the golden sets, cut in several ways and at random moments: the pool is what the oracle says."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from support import golden
from support.any_order import ORDERS, check, spans, wanted
from support.simulation import Simulation


@pytest.mark.parametrize(
    ("name", "order", "tasks"),
    [
        *(("everything", order, tasks) for order in ORDERS for tasks in (1, 5, 16)),
        *(("large", "any", tasks) for tasks in (1, 5)),
    ],
)
def test_any_order_and_any_cut(name: str, order: str, tasks: int) -> None:
    check(golden.load(name), order, tasks, seed=tasks, tick_share=0.2)


@given(
    order=st.sampled_from(sorted(ORDERS)),
    tasks=st.integers(1, 24),
    seed=st.integers(0, 2**32),
    tick_share=st.floats(0.02, 0.8),
)
@example(order="any", tasks=11, seed=1966, tick_share=0.7263133523548599)  # pieces of a part without rows are left
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_order_any_cut_any_moment(order: str, tasks: int, seed: int, tick_share: float) -> None:
    check(golden.load("everything"), order, tasks, seed, tick_share)


def test_contents_repeated_in_later_files_change_nothing() -> None:
    loaded = golden.load("everything")
    simulation = Simulation(loaded, spans(loaded, 7, seed=1), seed=1)
    simulation.run(golden.with_repeated_contents(loaded.files, seed=1))
    assert simulation.progress_ts == loaded.end_ts
    assert_frame_equal(simulation.pool(), wanted(loaded.name))
