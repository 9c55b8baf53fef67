"""`tistream up` as a process: one per directory, no orphans, restarts, an idle tenant that writes nothing.

The tests share one directory and run in the order in which they stand here; each leaves the platform running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support import golden, platform
from support.compare import shown, tenant_differences
from support.platform import COMMAND, SERVICES, Platform, free_port


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform.running(tmp_path_factory.mktemp("up"), ranges=16, killed=True) as up:
        for loaded in (golden.load("large"), golden.load_as("large", "7", "idle")):
            golden.push(loaded.deliveries, up.objects)
            up.create_for(loaded).wait_for(loaded.end_ts)
        yield up


def test_an_idle_platform_writes_nothing(mine: Platform) -> None:
    time.sleep(12)  # the last progress may be written once, within 10 s
    before = _objects(mine)
    time.sleep(12)
    after = _objects(mine)
    gone = {path: before[path] for path in before.keys() - after.keys()}
    assert after | gone == before
    # Recorded change files are old: they are deleted once they are consumed, and nothing else is.
    assert all("/data_change_buffer/" in path and "/store-" in path for path in gone), gone


def _objects(up: Platform) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in up.objects.rglob("*") if path.is_file()}


def test_a_second_up_on_the_directory_is_refused(mine: Platform) -> None:
    refused = _run_up(mine.data_dir, free_port())
    assert refused.returncode == 1, refused
    assert refused.stdout == ""
    assert str(mine.data_dir) in refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr


def test_who_starts_it_is_told_that_nobody_is_asked_for_a_token(mine: Platform) -> None:
    told = "".join(file.read_text() for file in mine.data_dir.glob("up-*.stderr"))
    assert "no authentication: whoever is on this machine may do everything" in told
    assert "no authentication" in (mine.logs / "api.log").read_text()


def test_a_port_that_is_taken_is_a_clear_error(mine: Platform, tmp_path: Path) -> None:
    refused = _run_up(tmp_path, mine.port)
    assert refused.returncode == 1, refused
    assert str(mine.port) in refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr


def _run_up(data_dir: Path, port: int) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "up", "--data-dir", str(data_dir), "--port", str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_killed_children_are_started_again(mine: Platform) -> None:
    assert {process.role for process in mine.alive()} >= {*SERVICES, "up", "jvm"}
    before = {service: mine.kill(service) for service in SERVICES}
    deadline = time.monotonic() + 60
    while not _serves_again(mine, before):
        assert time.monotonic() < deadline, mine.report()
        time.sleep(0.2)


def _serves_again(up: Platform, before: dict[str, int]) -> bool:
    try:
        renewed = all(up.pid(service) != pid for service, pid in before.items())
        return renewed and httpx.get(f"{up.url}/readyz", timeout=5).status_code == 200
    except (AssertionError, httpx.TransportError):
        return False


def usage_not_told(up: Platform) -> int:
    """How often a process has ended before it could tell what is metered."""
    return sum(file.read_text().count("usage of the last seconds is not told") for file in up.logs.glob("*.log"))


def test_stop_while_a_stream_is_open_and_start_again(mine: Platform) -> None:
    loaded = golden.load("large")
    consumer = mine.consumer(loaded.tenant)
    with httpx.Client(timeout=30) as client:
        query: dict[str, str] = {"follow": "true", "start_ts": str(loaded.end_ts)}
        with client.stream("GET", consumer.changes_url(), params=query) as stream:
            assert stream.status_code == 200
            consumer.status()  # there is usage to tell
            untold = usage_not_told(mine)
            mine.stop()
    assert usage_not_told(mine) == untold
    mine.start()
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


def test_a_killed_supervisor_leaves_nobody(mine: Platform) -> None:
    mine.kill("up")
    assert mine.wait_gone(10) == []
    mine.start()


def test_an_interrupt_stops_as_terminate_does(mine: Platform) -> None:
    os.kill(mine.pid("up"), signal.SIGINT)
    assert mine.wait_gone(10) == []
