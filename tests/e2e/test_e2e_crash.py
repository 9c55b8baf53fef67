"""kill -9 of each process, and of all at once, at seeded random moments during the push: the same events, once."""

from __future__ import annotations

import random
import threading

import httpx
import pytest

from support import golden
from support.compare import content, shown, tenant_differences
from support.effort import cases
from support.platform import SERVICES, Platform
from support.pull import Event, Refused
from support.waiting import eventually

VICTIMS = (*SERVICES, "jvm", "other")  # `other` is one of Spark's Python workers


@pytest.mark.parametrize("victims", cases([VICTIMS], [(victim,) * 3 for victim in VICTIMS]), ids="-".join)
def test_processes_killed_during_the_push_are_started_again_and_nothing_is_lost(
    mortal: Platform, victims: tuple[str, ...]
) -> None:
    rng = random.Random(f"kill {victims}")
    loaded = golden.load_as("everything", "9", f"kill-{victims[0]}-{victims[-1]}")
    golden.put(mortal.objects, loaded.schema_snap)
    consumer = mortal.create_for(loaded)
    moments = rng.sample(range(10, len(loaded.files)), len(victims))
    strikes = dict(zip(moments, rng.sample(victims, len(victims)), strict=True))

    def strike(number: int) -> None:
        if number in strikes:
            eventually(lambda: mortal.pids(strikes[number]))  # what was killed before may have taken it along
            mortal.kill(strikes[number])

    golden.push(loaded.files, mortal.objects, pace=0.7, before_each=strike)
    eventually(lambda: _resolved(mortal, loaded))
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


def _resolved(up: Platform, loaded: golden.GoldenSet) -> bool:
    """Asked of an API that comes and goes."""
    try:
        return int(up.consumer(loaded.tenant).status()["resolved_ts"]) >= loaded.end_ts
    except (Refused, OSError, httpx.TransportError):
        return False


@pytest.mark.parametrize("seed", cases([1], [2, 3]))
def test_all_processes_killed_at_once_then_up_again(mortal: Platform, seed: int) -> None:
    """The push goes on while nothing runs; a consumer goes on from its last cursor, across the crash."""
    rng = random.Random(seed)
    sets = [golden.load_as(name, "9", f"all-killed-{name}-{seed}") for name in golden.NAMES]
    pushers = []
    for loaded in sets:
        golden.put(mortal.objects, loaded.schema_snap)
        mortal.create_for(loaded)
        pushers.append(threading.Thread(target=golden.push, args=(loaded.files, mortal.objects), kwargs={"pace": 2.0}))
    got: dict[str, list[Event]] = {loaded.name: [] for loaded in sets}
    cursors: dict[str, dict[str, str | int]] = {s.name: {"start_ts": s.snapshot_ts} for s in sets}
    middle = {loaded.name: rng.choice(loaded.files).key for loaded in sets}
    for pusher in pushers:
        pusher.start()
    eventually(lambda: any((mortal.objects / key).exists() for key in middle.values()))
    for loaded in sets:
        eventually(lambda loaded=loaded: _took_a_page(mortal, loaded, got, cursors))  # type: ignore[misc]
    mortal.kill_all()
    mortal.start()
    for pusher in pushers:
        pusher.join()
    for loaded in sets:
        query = {**cursors[loaded.name], "limit": 100_000}
        for page in mortal.consumer(loaded.tenant).pages(until_ts=loaded.end_ts, query=query):
            got[loaded.name] += [*page.events, page.end]
        problems = tenant_differences(loaded, got[loaded.name])
        assert not problems, shown(problems)
        again = mortal.consumer(loaded.tenant).pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
        assert content(again) == content(got[loaded.name])


def _took_a_page(
    up: Platform,
    loaded: golden.GoldenSet,
    got: dict[str, list[Event]],
    cursors: dict[str, dict[str, str | int]],
) -> bool:
    try:
        page = up.consumer(loaded.tenant).page(**cursors[loaded.name], limit=500)
    except Refused as refused:
        if refused.retry_after is None:
            raise
        return False  # the tenant is not known yet
    got[loaded.name] += [*page.events, page.end]
    cursors[loaded.name] = {"cursor": page.cursor}
    return True
