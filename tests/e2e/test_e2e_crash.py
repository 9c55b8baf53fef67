"""kill -9 of each process, and of all at once, at seeded random moments during the push: the same events, once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import golden, platform
from support.compare import content, shown, tenant_differences
from support.platform import SERVICES, Platform
from support.pull import Event, Refused


@pytest.fixture(scope="module")
def killed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform.running(tmp_path_factory.mktemp("up"), ranges=4, killed=True) as started:
        yield started


@pytest.mark.parametrize("victim", [*SERVICES, "jvm", "other"])
def test_a_process_killed_during_the_push_is_started_again_and_nothing_is_lost(
    killed_up: Platform, victim: str
) -> None:
    """`other` is one of Spark's Python workers."""
    up = killed_up
    rng = random.Random(f"kill {victim}")
    loaded = golden.load_as("everything", "9", f"kill-{victim}")
    golden.put(up.objects, loaded.schema_snap)
    consumer = up.create_for(loaded)
    moments = set(rng.sample(range(10, len(loaded.files)), 3))
    killed = []

    def strike(number: int) -> None:
        if number in moments and any(process.role == victim for process in up.alive()):
            killed.append(up.kill(victim))

    golden.push(loaded.files, up.objects, pace=0.7, before_each=strike)
    _wait_resolved(up, loaded, timeout=240)
    assert killed, "nothing was killed"
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


def _wait_resolved(up: Platform, loaded: golden.GoldenSet, timeout: float) -> None:
    """As Consumer.wait_for, through an API that comes and goes."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            if int(up.consumer(loaded.tenant).status()["resolved_ts"]) >= loaded.end_ts:
                return
        except (Refused, OSError, platform.httpx.TransportError):
            pass
        assert time.monotonic() < deadline, up.report()
        time.sleep(0.2)


@pytest.mark.parametrize("seed", [1, 2])
def test_all_processes_killed_at_once_then_up_again(tmp_path: Path, seed: int) -> None:
    """The push goes on while nothing runs; a consumer goes on from its last cursor, across the crashes."""
    rng = random.Random(seed)
    sets = [golden.load(name) for name in golden.NAMES]
    with platform.running(tmp_path, ranges=rng.choice([1, 4, 16]), killed=True) as up:
        pushers = []
        for loaded in sets:
            golden.put(up.objects, loaded.schema_snap)
            up.create_for(loaded)
            pushers.append(threading.Thread(target=golden.push, args=(loaded.files, up.objects), kwargs={"pace": 2.0}))
        got: dict[str, list[Event]] = {loaded.name: [] for loaded in sets}
        cursors: dict[str, dict[str, str | int]] = {s.name: {"start_ts": s.snapshot_ts} for s in sets}
        for pusher in pushers:
            pusher.start()
        for _ in range(2):
            time.sleep(rng.uniform(0.5, 5.0))
            for loaded in sets:
                _take_a_page(up, loaded, got, cursors)
            up.kill_all()
            time.sleep(rng.uniform(0, 0.5))
            up.start()
        for pusher in pushers:
            pusher.join()
        for loaded in sets:
            query = {**cursors[loaded.name], "limit": 100_000}
            for page in up.consumer(loaded.tenant).pages(until_ts=loaded.end_ts, query=query):
                got[loaded.name] += [*page.events, page.end]
            problems = tenant_differences(loaded, got[loaded.name])
            assert not problems, shown(problems)
            again = up.consumer(loaded.tenant).pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
            assert content(again) == content(got[loaded.name])


def _take_a_page(
    up: Platform,
    loaded: golden.GoldenSet,
    got: dict[str, list[Event]],
    cursors: dict[str, dict[str, str | int]],
) -> None:
    page = up.consumer(loaded.tenant).page(**cursors[loaded.name], limit=500)
    got[loaded.name] += [*page.events, page.end]
    cursors[loaded.name] = {"cursor": page.cursor}
