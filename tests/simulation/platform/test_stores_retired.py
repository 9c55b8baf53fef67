"""Stores that are gone are retired while files come: seeds of the simulation must do it, not only ask for it."""

from __future__ import annotations

import random

from support.sim import world
from support.sim.chaos import Chaos, Script
from support.sim.operator import Operator

SEED = 1  # eight stores, some of which leave the cluster


def retire(chaos: Chaos) -> None:
    """As the chaos of a seed asks for it."""
    operator = Operator(chaos.platform, random.Random(chaos.rng.random()))
    chaos.platform.scheduler.start(chaos.platform.outside, "operator", operator.retire)


def test_some_orders_to_retire_a_store_are_taken_and_nothing_is_lost() -> None:
    script: Script = [(at_ms, retire) for at_ms in range(3_000, 19_000, 3_000)]
    one = world.run(SEED, script)
    assert one.met()["stores retired"] >= 2
