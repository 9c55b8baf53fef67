"""Pulls, the schema and status while tasks are split and merged: every event once and in order, for a consumer whose
server learns of new tasks late, and whose answers are under way meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.effort import cases, examples
from support.simulated import WILD
from support.split_histories import History
from support.split_readers import Readers

ALTERING = replace(WILD, ddl_per_min=300, tables=4, columns=4)


class Served(History):
    """A history that is read while it happens."""

    def begin(self) -> None:
        self.read = Readers(self.world, self.upstream, random.Random(self.rng.random()))

    def something(self) -> None:
        super().something()
        if self.rng.random() < 0.2:
            self.read.step()


def run(seed: int) -> Served:
    history = Served(ALTERING, seed, 3_000)
    history.begin()
    history.run()
    for _ in range(1_000):
        if history.read.resolved_ts >= history.upstream.end_ts:
            break
        history.read.step(newest=True)
    found, wanted = history.read.events, history.upstream.cluster.truth.events
    for one, other in zip(found, wanted, strict=False):
        assert one == other
    assert len(found) == len(wanted)
    return history


@settings(max_examples=examples(3, few=1), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_consumer_gets_every_event_once_and_in_order_across_seals(seed: int) -> None:
    run(seed)


def test_answers_are_under_way_while_tasks_are_sealed() -> None:
    histories = [run(seed) for seed in cases([11], [5, 6, 7])]
    assert sum(history.read.reading_across for history in histories) > 0
    assert all(history.world.sealed for history in histories)
