"""`tistream up` as a process: one per directory, no orphans, restarts, an idle tenant that writes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from support import golden, platform
from support.compare import shown, tenant_differences
from support.platform import COMMAND, SERVICES, Platform, free_port, processes

pytestmark = pytest.mark.e2e


def test_one_up_per_directory_clean_stop_and_start_again(tmp_path: Path) -> None:
    loaded = golden.load("large")
    with platform.running(tmp_path) as up:
        golden.push(loaded.deliveries, up.objects)
        consumer = up.create_for(loaded)
        consumer.wait_for(loaded.end_ts)

        second = subprocess.run(
            [COMMAND, "up", "--data-dir", tmp_path, "--port", str(free_port())],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert second.returncode == 1, second
        assert second.stdout == ""
        assert str(tmp_path) in second.stderr
        assert len(second.stderr.splitlines()) <= 2, second.stderr

        taken = subprocess.run(
            [COMMAND, "up", "--data-dir", tmp_path / "else", "--port", str(up.port)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert taken.returncode == 1, taken
        assert str(up.port) in taken.stderr

        assert {process.role for process in up.alive()} >= {*SERVICES, "up", "jvm"}
        up.stop()
        up.start()
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
        problems = tenant_differences(loaded, events)
        assert not problems, shown(problems)


def test_stop_while_streams_and_long_polls_are_open(tmp_path: Path) -> None:
    loaded = golden.load("large")
    with platform.running(tmp_path) as up:
        golden.push(loaded.deliveries, up.objects)
        consumer = up.create_for(loaded)
        status = consumer.wait_for(loaded.end_ts)
        with httpx.Client(timeout=30) as client:
            query: dict[str, str] = {"follow": "true", "start_ts": status["resolved_ts"]}
            with client.stream("GET", consumer.changes_url(), params=query) as stream:
                assert stream.status_code == 200
                up.stop()


def test_a_killed_supervisor_leaves_nobody(tmp_path: Path) -> None:
    with platform.running(tmp_path) as up:
        up.kill("up")
        assert up.wait_gone(10) == []
        up.start()


def test_killed_children_are_started_again(tmp_path: Path) -> None:
    with platform.running(tmp_path) as up:
        for service in SERVICES:
            before = up.kill(service)
            deadline = time.monotonic() + 30
            while True:
                try:
                    if up.pid(service) != before and httpx.get(f"{up.url}/readyz", timeout=5).status_code == 200:
                        break
                except (AssertionError, httpx.TransportError):
                    pass
                assert time.monotonic() < deadline, (service, up.report())
                time.sleep(0.2)


def test_interrupt_stops_as_terminate_does(tmp_path: Path) -> None:
    with platform.running(tmp_path) as up:
        os.kill(up.pid("up"), signal.SIGINT)
        assert up.wait_gone(10) == []
        assert processes(up.mark) == []


def test_an_idle_tenant_and_an_idle_platform_write_nothing(tmp_path: Path) -> None:
    with platform.running(tmp_path, ranges=16) as up:
        loaded, other = golden.load("large"), golden.load_as("large", "7", "idle")
        for one in (loaded, other):
            golden.push(one.deliveries, up.objects)
            up.create_for(one).wait_for(one.end_ts)
        time.sleep(3)
        before = _objects(up)
        time.sleep(15)
        assert _objects(up) == before


def _objects(up: Platform) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in up.objects.rglob("*") if path.is_file()}
