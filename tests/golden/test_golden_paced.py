"""The golden sets as they were made: file by file at the pace of `at_ms`, announced, with readers that follow."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from support import golden, platform
from support.compare import concerns, content, shown, tenant_differences
from support.pull import Consumer, Event, Refused

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("ranges", [4, 16])
def test_followers_see_everything_once_while_files_arrive(tmp_path: Path, ranges: int) -> None:
    sets = [golden.load(name) for name in golden.NAMES]
    with platform.running(tmp_path, ranges=ranges) as up:
        streams: dict[tuple[str, ...], list[Event]] = {}
        failures: list[BaseException] = []

        def follow(consumer: Consumer, loaded: golden.GoldenSet, *scope: str) -> None:
            kept = streams[(loaded.name, *scope)] = []
            try:
                while True:
                    try:
                        query = {"start_ts": loaded.snapshot_ts, "timeout": 120.0}
                        kept.extend(consumer.follow(*scope, until_ts=loaded.end_ts, **query))
                        return
                    except Refused as refused:  # nothing bears the name yet
                        if refused.status != 404 or not scope:
                            raise
                        time.sleep(0.1)
            except BaseException as error:  # the main thread raises it
                failures.append(error)

        threads = []
        for loaded in sets:
            golden.put(up.objects, loaded.schema_snap)
            consumer = up.create_for(loaded)
            for scope in [(), ("shop",), ("shop", "busy")] if loaded.name == "everything" else [()]:
                args = (up.consumer(loaded.tenant), loaded, *scope)
                threads.append(threading.Thread(target=follow, args=args, daemon=True))
            pusher = threading.Thread(
                target=golden.push,
                args=(loaded.files, up.objects),
                kwargs={"url": up.url, "pace": 1.0},
                daemon=True,
            )
            threads.append(pusher)
        wait_known(consumer)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(150)
            assert not thread.is_alive()
        assert not failures, failures
    for loaded in sets:
        whole = streams[(loaded.name,)]
        problems = tenant_differences(loaded, whole)
        assert not problems, shown(problems)
        for scope in [("shop",), ("shop", "busy")] if loaded.name == "everything" else []:
            want = content(event for event in whole if concerns(event, *scope))
            assert content(streams[(loaded.name, *scope)]) == want


def wait_known(consumer: Consumer) -> None:
    """Until the tenant has begun: its status can be read."""
    consumer.wait_for(1)
