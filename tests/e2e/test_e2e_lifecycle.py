"""`tistream up` as a process: one per directory, no orphans, restarts, an idle tenant that writes nothing.

Some end the platform: the next test that wants it starts it (conftest.py).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import golden, plain_http, platform_reports
from support.compare import shown, tenant_differences
from support.platform import COMMAND, Platform, free_port
from support.pull import Consumer
from support.waiting import PATIENCE_S, eventually
from tistream_cli.platform.up import GRACE_MS
from tistream_cli.processes.supervisor import _PARTS

SET = golden.load("large")
FIRST_S = GRACE_MS * (_PARTS - 1) // _PARTS / 1_000  # then the meta server ends, though others may still run
IDLE_S = 12  # the last progress may be written once, within 10 s


@pytest.fixture(scope="module")
def consumer(mortal: Platform) -> Consumer:
    """Of a recorded tenant, all of whose files have come."""
    golden.push(SET.deliveries, mortal.objects)
    consumer = mortal.create_for(SET)
    consumer.wait_for(SET.end_ts)
    return consumer


def test_an_idle_platform_writes_nothing(mortal: Platform, consumer: Consumer) -> None:
    eventually(lambda: _writes_nothing(mortal))


def _writes_nothing(up: Platform) -> bool:
    """For longer than the longest pause between two writes of a platform that is not idle."""
    before = _objects(up)
    time.sleep(IDLE_S)
    after = _objects(up)
    gone = {path: before[path] for path in before.keys() - after.keys()}
    # Recorded change files are old: they are deleted once they are consumed.
    return after | gone == before and all("/data_change_buffer/" in path and "/store-" in path for path in gone)


def _objects(up: Platform) -> dict[str, int]:
    found = {}
    for path in up.objects.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
            if path.is_file():
                found[str(path)] = path.stat().st_mtime_ns
    return found


def test_a_failed_test_would_print_what_the_platform_says(
    request: pytest.FixtureRequest, mortal: Platform, consumer: Consumer
) -> None:
    def fail() -> None:
        raise AssertionError("it failed")

    call = pytest.CallInfo.from_call(fail, "call")
    adding = platform_reports.pytest_runtest_makereport(request.node, call)
    next(adding)
    with pytest.raises(StopIteration) as ended:
        adding.send(pytest.TestReport.from_item_and_call(request.node, call))
    said = "\n".join(text for _, text in ended.value.value.sections)
    assert f'"resolved_ts":"{consumer.status()["resolved_ts"]}"' in said
    assert {"--- sorter.log", "--- api.log", "--- up.log"} <= set(said.splitlines())


def test_a_second_up_on_the_directory_is_refused(mortal: Platform) -> None:
    refused = _run_up(mortal.data_dir, free_port())
    assert refused.returncode == 1, refused
    assert refused.stdout == ""
    assert str(mortal.data_dir) in refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr


def test_who_starts_it_is_told_that_nobody_is_asked_for_a_token(mortal: Platform) -> None:
    told = "".join(file.read_text() for file in mortal.data_dir.glob("up-*.stderr"))
    assert "no authentication: every user of this machine may do everything" in told
    assert "no authentication" in (mortal.logs / "api.log").read_text()


def test_a_port_that_is_taken_is_a_clear_error(mortal: Platform, tmp_path: Path) -> None:
    refused = _run_up(tmp_path, mortal.port)
    assert refused.returncode == 1, refused
    assert str(mortal.port) in refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr


def _run_up(data_dir: Path, port: int) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "up", "--data-dir", str(data_dir), "--port", str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def usage_not_told(up: Platform) -> int:
    """How often a process that ended could not tell what is metered. Not counted: the meta server was there, and did
    not answer in time."""
    lines = [line for file in up.logs.glob("*.log") for line in file.read_text().splitlines()]
    return sum("usage of the last seconds is not reported" in line and "Timeout" not in line for line in lines)


def test_an_interrupt_while_a_stream_is_open_stops_as_terminate_does_and_it_is_started_again(
    mortal: Platform, consumer: Consumer
) -> None:
    with plain_http.client() as client:
        query: dict[str, str] = {"follow": "true", "start_ts": str(SET.end_ts)}
        with client.stream("GET", consumer.changes_url(), params=query) as stream:
            assert stream.status_code == 200
            consumer.status()  # there is usage to tell
            untold, began = usage_not_told(mortal), time.monotonic()
            mortal.stop(signal.SIGINT)  # SIGTERM: the end of each platform
            took_s = time.monotonic() - began
    if took_s < FIRST_S:
        assert usage_not_told(mortal) == untold
    mortal.start()
    events = consumer.pull(until_ts=SET.end_ts, start_ts=SET.snapshot_ts, limit=100_000)
    problems = tenant_differences(SET, events)
    assert not problems, shown(problems)


def test_a_killed_supervisor_leaves_nobody(mortal: Platform) -> None:
    mortal.kill("up")
    assert mortal.wait_gone(PATIENCE_S) == []
