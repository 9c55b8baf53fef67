"""Seeds of the whole platform under faults: nothing lost, nothing twice, nothing out of order, and it comes to rest."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from support.sim import world
from support.sim.seeds import many, never_met

FIRST = int(os.environ.get("TISTREAM_SIM_FIRST", "1"))
SEEDS = int(os.environ.get("TISTREAM_SIM_SEEDS", "120"))
TWICE, SIDE_BY_SIDE = 7, range(20, 28)
# What is wrong with these fails the other two tests: among the usual seeds they need not be run once more.
OF_OTHERS = set() if "TISTREAM_SIM_SEEDS" in os.environ else {TWICE, *SIDE_BY_SIDE}


@pytest.mark.parametrize("seed", [seed for seed in range(FIRST, FIRST + SEEDS) if seed not in OF_OTHERS])
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


def test_seeds_run_side_by_side_and_meet_what_they_have_to() -> None:
    """`make sim`, small: most of what has to happen now and then happens in a few seeds already."""
    results = list(many(SIDE_BY_SIDE, workers=2))
    assert [result.problem for result in results] == [None] * len(SIDE_BY_SIDE)
    rare = {
        "tasks lost to a newer epoch",
        "replaced processes that ended themselves",
        "owners that lost their lease",
        "damaged files",
        "scans after a loss",
        "jobs that died",
        "stores that went to another dispatcher",
        "commits in doubt",
        "uploads that landed late",
        "chains that a late upload broke",
    }
    assert set(never_met(results)) <= rare
    met = sum((result.met for result in results), Counter[str]())
    assert met["events told during the faults"] >= met["events"] / 5
    assert met["strikes"] >= 2 * len(results)
