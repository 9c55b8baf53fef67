"""Faults of which each has once found something, one after the other by a script: seeds shift with every change of the
code and meet them by chance only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from support.effort import cases
from support.sim import world
from support.sim.chaos import Chaos, Script
from tistream.errors import TiStreamError
from tistream.wire.clients.meta_client import MetaClient

Strike = Callable[[Chaos], None]


def replaced(name: str, wakes_ms: float = 3_000, dies_ms: float = 12_000) -> Strike:
    return lambda chaos: chaos.replace(chaos.platform.members[name], wakes_ms, dies_ms)


def paused(name: str, for_ms: float) -> Strike:
    return lambda chaos: chaos.pause(chaos.platform.members[name], for_ms)


def killed(name: str) -> Strike:
    return lambda chaos: chaos.kill(chaos.platform.members[name])


def begun_anew(chaos: Chaos) -> None:
    chaos.forget(None)


def store(fault: str, strength: float, for_ms: float) -> Strike:
    return lambda chaos: chaos.storm(chaos.platform.faults.store, fault, strength, for_ms)


def database(strength: float, for_ms: float) -> Strike:
    return lambda chaos: chaos.storm(chaos.platform.faults, "database_silent", strength, for_ms)


def dispatcher(number: int, strike: Callable[[str], Strike]) -> Strike:
    """Strike the number-th dispatcher: what it is called depends on who else there is."""
    return lambda chaos: strike(chaos.platform.of("dispatcher")[number].name)(chaos)


def drained(name: str) -> Strike:
    def strike(chaos: Chaos) -> None:
        platform = chaos.platform

        def ask() -> None:
            while True:
                try:
                    MetaClient(platform.client(deadline_s=2), platform.of("meta")[0].url).drain(name)
                    return
                except TiStreamError:
                    platform.scheduler.sleep(200_000)

        chaos.told.append(f"drain {name}")
        platform.scheduler.start(platform.outside, "drain", ask)

    return strike


SEEDS = cases([9], [8, 12, 16])  # 16 is of few stores and large files
META, SCHEMA, DISPATCHER, SORTER, SORTER_2, API = (
    "meta-1",
    "schema-2",
    "dispatcher-3",
    "sorter-4",
    "sorter-5",
    "api-6",
)

ENDED_THEMSELVES = "replaced processes that ended themselves"

# What befalls whom, at how many ms; and what must have been met, by the names of `World.met`.
SCENARIOS: dict[str, tuple[Script, tuple[str, ...]]] = {
    "a-sorter-that-was-replaced-wakes-beside-its-successor": (
        [(500, replaced(SORTER)), (900, replaced(SORTER_2, 6_000)), (9_000, replaced(SORTER, 1_500))],
        (ENDED_THEMSELVES,),
    ),
    "a-sorter-that-was-replaced-wakes-while-nobody-can-tell-it": (
        [
            *((at_ms, replaced(SORTER, 1_500, 4_000)) for at_ms in (500, 5_500, 10_500, 15_500)),
            *((at_ms, replaced(SORTER_2, 1_500, 4_000)) for at_ms in (600, 5_600, 10_600, 15_600)),
            *((at_ms, paused(META, 3_000)) for at_ms in (1_800, 6_800, 11_800, 16_800)),
        ],
        ("tasks lost to a newer epoch", ENDED_THEMSELVES),
    ),
    "a-meta-server-that-was-replaced-wakes-beside-its-successor": (
        [(500, replaced(META, 5_000)), (8_000, replaced(META, 4_500))],
        ("owners that lost their lease",),
    ),
    "commits-whose-answer-is-lost": (
        [(300, store("unanswered", 0.5, 6_000)), (9_000, store("unanswered", 0.3, 5_000))],
        ("commits in doubt",),
    ),
    "a-store-that-says-slow-down": ([(300, store("refused", 0.6, 8_000))], ()),
    "a-sorter-sleeps-past-its-lease-and-wakes": (
        [(300, paused(SORTER, 9_000)), (300, paused(SORTER_2, 6_500)), (12_000, paused(SORTER_2, 6_500))],
        ("tasks lost to a newer epoch",),
    ),
    "everybody-dies-in-one-moment": (
        [(2_000, killed(n)) for n in (META, SCHEMA, DISPATCHER, SORTER, SORTER_2, API)],
        (),
    ),
    "the-meta-database-is-silent-while-a-sorter-dies": ([(300, database(0.7, 6_000)), (600, killed(SORTER))], ()),
    "the-meta-database-is-restored-from-before-the-tenants-start": (
        [(1_000, store("slow", 0.3, 9_000)), (3_000, begun_anew), (3_500, killed(SORTER)), (11_000, begun_anew)],
        ("tenants whose tasks were given back",),
    ),
    "the-registry-and-the-dispatcher-are-replaced": (
        [(500, replaced(DISPATCHER)), (1_000, replaced(SCHEMA)), (6_000, replaced(API))],
        (ENDED_THEMSELVES,),
    ),
}


FEW = ("commits-whose-answer-is-lost",)


@pytest.mark.parametrize("name", cases(FEW, [name for name in SCENARIOS if name not in FEW]))
def test_what_has_found_something_finds_nothing_any_more(name: str) -> None:
    script, wanted = SCENARIOS[name]
    worlds = [world.run(seed, script) for seed in SEEDS]
    assert all(len(one.chaos.told) >= len(script) for one in worlds)
    met = sum((one.met() for one in worlds), Counter[str]())
    assert [what for what in wanted if not met[what]] == []


def test_stores_change_their_dispatchers_while_files_come() -> None:
    script: Script = [
        (500, dispatcher(0, lambda name: paused(name, 9_000))),  # it wakes long after its stores were given away
        (2_500, dispatcher(1, drained)),
        (9_000, dispatcher(2, lambda name: paused(name, 6_000))),
        (11_000, dispatcher(1, killed)),
        (12_000, dispatcher(0, killed)),
        (16_000, dispatcher(0, drained)),
    ]
    for seed in SEEDS:
        one = world.run(seed, script, dispatchers=3)
        assert len(one.chaos.told) >= len(script)
        assert one.met()["stores that went to another dispatcher"] >= 1
