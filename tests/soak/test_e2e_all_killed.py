"""kill -9 of all processes at once, at seeded random moments during a push: the same events, once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from support import golden, platform
from support.compare import content, shown, tenant_differences
from support.platform import Platform
from support.pull import Event, Refused
from support.waiting import eventually


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform.running(tmp_path_factory.mktemp("mortal"), ranges=16, killed=True) as started:
        yield started


@pytest.mark.parametrize("seed", [1, 2, 3])
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
