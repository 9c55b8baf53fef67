"""Whatever happens to tasks and sorters while files arrive, the pool is what one task would have made of it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.effort import NAMED, cases, examples
from support.simulated import FLUSHING, LOSING, WILD
from support.split_histories import History
from tistream_upstream.config import ClusterConfig


@example(seed=117)
@settings(max_examples=examples(4), phases=NAMED, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_tasks_that_are_split_and_merged_write_what_one_task_would(seed: int) -> None:
    History(WILD, seed).run()


@pytest.mark.parametrize("config", cases([pytest.param(LOSING, id="losing")], [pytest.param(FLUSHING, id="flushing")]))
def test_the_same_where_one_thing_happens_often(config: ClusterConfig) -> None:
    History(config, 3005).run()


def test_what_a_task_names_is_not_collected_though_its_keys_are_those_of_another() -> None:
    """A merge is cut at other keys than the parents had: a child lists segments of a parent whose keys are not its own,
    and retention drops them from the other children first."""
    History(LOSING, 4007, keep_ms=300).run()


def test_histories_meet_what_they_have_to() -> None:
    met = [History(WILD, seed, 3_000) for seed in cases([3], [1, 2])]
    for history in met:
        history.run()
    assert sum(len(history.world.sealed) for history in met) > 2 * len(met)
    assert sum(history.given_back for history in met)
    assert sum(reader.crossed for history in met for reader in history.readers)
