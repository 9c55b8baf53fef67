"""What seeds of the simulation must have met together, or `make sim` fails."""

from __future__ import annotations

from collections import Counter

import pytest

from support.sim.seeds import SOMETIMES, Result, never_met


def seeds_without(event: str) -> list[Result]:
    """Two seeds that have met all but that between them."""
    met = Counter({what: 1 for what in SOMETIMES if what != event})
    return [Result(1, None, met=met), Result(2, None, met=met)]


@pytest.mark.parametrize("event", ["chains begun anew", "databases restored", "DDLs cancelled", "stores retired"])
def test_seeds_that_never_met_an_event_of_the_world_name_it(event: str) -> None:
    assert never_met(seeds_without(event)) == [event]


def test_one_seed_that_has_met_an_event_is_enough() -> None:
    event = "stores retired"
    assert never_met([*seeds_without(event), Result(3, None, met=Counter({event: 1}))]) == []
