"""What `tistream simulate` refuses, how it says so, and that nothing was written by then."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.command import command
from support.platform import COMMAND, free_port
from support.waiting import PATIENCE_S, eventually
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.wire.clients.client import HttpClient
from tistream_upstream.outside import Talker
from tistream_upstream.platform_api import PlatformApi
from tistream_verify.fingerprint import TruthLine, TruthRun

SMALL = ("--rows-per-s", "50", "--txns-per-s", "20", "--tables", "2", "--push-ms", "200")


def words(objects: Path, *more: object) -> list[str]:
    return [str(part) for part in ("simulate", "--objects", objects, "--cluster", "9", *SMALL, *more)]


def run(objects: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return command(*words(objects, *more))


def test_the_first_truth_line_says_whose_it_is(tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    options = ("--tenant", "sim", "--seed", "7", "--duration", "0.5", "--truth", truth)
    assert run(tmp_path / "objects", *options).returncode == 0
    first, *others = [TruthLine.parse(line) for line in truth.read_bytes().splitlines()]
    assert first.run == TruthRun("9", "sim", 7, first.ts)
    assert others
    assert {line.run for line in others} == {None}


def test_the_truth_of_another_run_is_left_alone(tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    truth.write_bytes(b"another's\n")
    done = run(tmp_path / "objects", "--truth", truth, "--duration", "0.2")
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert done.stderr.count("\n") == 1
    assert truth.read_bytes() == b"another's\n"
    assert not [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tenant", "a/../b"], "tenant_id 'a/../b'"),
        (["--tenant", ""], "tenant_id ''"),
        (["--truth", "/nowhere/truth"], "the folder /nowhere does not exist"),
        (["--objects", ""], "--objects is empty"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, more: list[str], said: str) -> None:
    done = run(tmp_path / "objects", "--duration", "0.2", *more)
    assert done.returncode == 1
    assert done.stderr.startswith("tistream: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_url_without_a_scheme_is_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path / "objects", "--url", "127.0.0.1:8000")
    assert done.returncode == 2
    assert "does not begin with http://" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_for_the_platform_is_said_and_can_be_ended(tmp_path: Path, number: signal.Signals) -> None:
    url, truth = f"http://127.0.0.1:{free_port()}", tmp_path / "truth"
    waiting = [COMMAND, *words(tmp_path / "objects", "--url", url, "--truth", truth)]
    with subprocess.Popen(waiting, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert f"waiting for the platform at {url}" in process.stderr.readline()
            process.send_signal(number)
            _, error = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "stopped before the platform answered; nothing was written" in error  # and not that it never did
    assert "Traceback" not in error
    assert not truth.exists()
    assert not [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]


@contextmanager
def platform(seen: list[str], objects: Path) -> Iterator[str]:
    """Answers a registration with what the object store holds at that moment, then is away for good."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.extend(path.name for path in objects.rglob("*") if path.is_file())
            self.send_response(201)
            self.end_headers()
            threading.Thread(target=server.shutdown).start()

        def log_message(self, *_: object) -> None:
            """Not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_tenant_is_registered_before_anything_is_written(tmp_path: Path) -> None:
    seen: list[str] = []
    objects = tmp_path / "objects"
    with platform(seen, objects) as url:
        simulating = [COMMAND, *words(objects, "--url", url, "--churn-per-s", "0")]
        process = subprocess.Popen(simulating, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: any(path.is_file() for path in objects.rglob("*")))  # it goes on
        finally:
            process.kill()
            process.wait()
    assert seen == []


def test_the_lag_of_a_platform_that_is_away_is_not_known() -> None:
    class Away(PlatformApi):
        away = False

        def lag_seconds(self) -> float | None:
            if self.away:
                raise Unavailable("nobody there")
            return 1.5

    api, said = Away("http://127.0.0.1:1", TenantKey("9", "sim"), HttpClient()), list[str]()
    talker = Talker(api, said.append)

    try:
        for api.away, lag in ((False, 1.5), (True, None), (False, 1.5)):
            eventually(lambda lag=lag: talker.lag_seconds == lag)
    finally:
        talker.stop()
