"""Seeds of the whole platform under faults: nothing lost, nothing twice, nothing out of order, and it comes to rest."""

from __future__ import annotations

import os

import pytest

from support.effort import FULL
from support.sim import world

FIRST = int(os.environ.get("TISTREAM_SIM_FIRST", "1"))
SEEDS = int(os.environ.get("TISTREAM_SIM_SEEDS", "120" if FULL else "1"))
TWICE = 7
SHORT_MS = 12_000  # a difference shows in the order of what happens, long before the end


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_everything_is_right_whatever_happens(seed: int) -> None:
    world.run(seed)


def _played() -> world.World:
    """The seed, to its end in the soak."""
    if FULL:
        return world.run(TWICE)
    with world.simulated(TWICE) as one:
        one.begin()
        one.scheduler.run(one.over, SHORT_MS)
        assert one.chaos.told
        assert one.consumers[0].events
        assert one.platform.objects.audit.ticks
        return one


def test_one_seed_replays_everything() -> None:
    first, second = (_played() for _ in range(2))
    assert first.scheduler.now_us == second.scheduler.now_us
    assert first.scheduler.switches == second.scheduler.switches
    assert first.platform.network.requests == second.platform.network.requests
    assert first.chaos.told == second.chaos.told
    assert first.consumers[0].events == second.consumers[0].events
    assert first.platform.objects.writes == second.platform.objects.writes
