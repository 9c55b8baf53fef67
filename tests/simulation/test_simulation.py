"""Seeds of the whole platform under faults: nothing lost, nothing twice, nothing out of order, and it comes to rest."""

from __future__ import annotations

import os

import pytest

from support.effort import FULL
from support.sim import world

FIRST = int(os.environ.get("TISTREAM_SIM_FIRST", "1"))
SEEDS = int(os.environ.get("TISTREAM_SIM_SEEDS", "120" if FULL else "3"))
TWICE = 7


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_everything_is_right_whatever_happens(seed: int) -> None:
    world.run(seed)


def test_one_seed_replays_everything() -> None:
    first, second = (world.run(TWICE) for _ in range(2))
    assert first.scheduler.now_us == second.scheduler.now_us
    assert first.scheduler.switches == second.scheduler.switches
    assert first.platform.network.requests == second.platform.network.requests
    assert first.chaos.told == second.chaos.told
    assert first.consumers[0].events == second.consumers[0].events
    assert first.platform.objects.writes == second.platform.objects.writes
