"""A service as a process: signals, limits, inherited sockets, wrong settings."""
# Attack: half a request on an open connection: closed

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from support import plain_http
from support.waiting import PATIENCE_S, eventually
from tistream.service.http import request_deadline, serve
from tistream.wire.clients import client

_SERVICE = """
import asyncio, os, sys, time
from fastapi import Request
from tistream.service.http.app import new_app
from tistream.service.observe.metrics import new_registry
from tistream.service.http.request_deadline import DeadlinedProtocol
from tistream.service.http.serve import run_service
from tistream.service.settings import ServiceSettings, settings_config

DeadlinedProtocol.seconds = float(os.environ.get("REQUEST_SECONDS", "1000"))

class EchoSettings(ServiceSettings):
    model_config = settings_config("ECHO")

def build(settings):
    app = new_app("echo", ready=lambda: None, registry=new_registry())

    @app.get("/poll")
    def poll():
        print("asked", file=sys.stderr, flush=True)
        return app.state.stopping.wait(1000)

    @app.get("/who")
    def who(request: Request) -> str:
        return request.client.host

    @app.get("/hang")
    def hang():
        print("asked", file=sys.stderr, flush=True)
        time.sleep(1000)

    @app.get("/wait")
    async def wait():
        print("asked", file=sys.stderr, flush=True)
        await asyncio.sleep(1000)

    @app.get("/cut")
    def cut():
        from fastapi.responses import StreamingResponse
        def lines():
            yield b"one\\n"
            raise ValueError("in the middle")
        return StreamingResponse(lines())

    return app

run_service(EchoSettings, build)
"""


# Longer than anything here is waited for: who needs one of them fails.
NO_LIMITS = {"SHUTDOWN_GRACE_SECONDS": "600", "SHUTDOWN_LIMIT_SECONDS": "600"}


class Service:
    """The echo service on a socket that the test has bound, as the supervisor does it for the API."""

    def __init__(self, log: Path, address: str = "127.0.0.1", request_seconds: float = 1_000, **settings: str) -> None:
        self.log = log
        with socket.socket() as listening, log.open("wb") as stderr:
            listening.bind((address, 0))
            listening.listen()
            self.port = listening.getsockname()[1]
            own = {"LISTEN_FD": str(listening.fileno()), "PORT": str(self.port), **settings}
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVICE],
                env={
                    **os.environ,
                    **{f"TISTREAM_ECHO__{name}": value for name, value in own.items()},
                    "REQUEST_SECONDS": str(request_seconds),
                },
                pass_fds=[listening.fileno()],
                stderr=stderr,
            )

    def started(self) -> Service:
        """The socket listens already: this waits until the service accepts."""
        self.get("/healthz")
        return self

    def get(self, path: str) -> httpx.Response:
        return plain_http.get(f"http://127.0.0.1:{self.port}{path}")

    def get_in_background(self, path: str) -> threading.Thread:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        thread = threading.Thread(target=self._read, args=(connection,), daemon=True)
        thread.start()
        eventually(lambda: "asked" in self.log.read_text())
        return thread

    def _read(self, connection: http.client.HTTPConnection) -> None:
        try:
            response = connection.getresponse()
            self.status, self.answer = response.status, response.read()
        except OSError as error:
            self.answer = repr(error).encode()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextmanager
def _service(log: Path, **settings: str) -> Iterator[Service]:
    service = Service(log, **settings)
    try:
        yield service.started()
    finally:
        service.process.kill()
        service.process.wait()


def test_idle_service_stops_at_once_and_well(tmp_path: Path) -> None:
    with _service(tmp_path / "log", **NO_LIMITS) as service:
        assert service.stop() == 0


def test_who_asks_is_whose_connection_it_is_and_not_what_a_header_says(tmp_path: Path) -> None:
    with _service(tmp_path / "log") as service:
        said = {"x-forwarded-for": "203.0.113.7", "forwarded": "for=203.0.113.7"}
        answer = plain_http.get(f"http://127.0.0.1:{service.port}/who", headers=said)
    assert answer.json() == "127.0.0.1"


def test_long_poll_is_answered_when_the_process_is_asked_to_end(tmp_path: Path) -> None:
    with _service(tmp_path / "log", **NO_LIMITS) as service:
        poll = service.get_in_background("/poll")
        assert service.stop() == 0
        poll.join(PATIENCE_S)
        assert service.answer == b"true"


def test_what_hangs_does_not_outlive_the_limit(tmp_path: Path) -> None:
    with _service(tmp_path / "log", SHUTDOWN_GRACE_SECONDS="0", SHUTDOWN_LIMIT_SECONDS="1") as service:
        service.get_in_background("/hang")
        assert service.stop() == 0
        assert "ended by force" in service.log.read_text()


def test_what_is_open_when_the_grace_period_ends_is_told_to_ask_again(tmp_path: Path) -> None:
    with _service(tmp_path / "log", SHUTDOWN_GRACE_SECONDS="1", SHUTDOWN_LIMIT_SECONDS="600") as service:
        thread = service.get_in_background("/wait")
        service.process.send_signal(signal.SIGTERM)
        thread.join(PATIENCE_S)
        assert (service.status, b"ask again" in service.answer) == (503, True)
        assert service.process.wait(PATIENCE_S) == 0
        assert "Traceback" not in service.log.read_text()


def test_stream_that_fails_is_cut_and_not_ended(tmp_path: Path) -> None:
    with _service(tmp_path / "log") as service, pytest.raises(httpx.RemoteProtocolError):
        service.get("/cut")


def test_who_sends_half_a_request_is_let_go(tmp_path: Path) -> None:
    service = Service(tmp_path / "log", request_seconds=2)
    try:
        with socket.create_connection(("127.0.0.1", service.port)) as slow:
            slow.settimeout(PATIENCE_S)
            with suppress(ConnectionError):  # this side may have been too slow for half a request even
                slow.sendall(b"GET /healthz HTTP/1.1\r\nx-slow: ")
                assert slow.recv(100) == b""

        def answers() -> bool:
            with suppress(httpx.TransportError):
                return service.get("/healthz").status_code == 200
            return False

        eventually(answers)
    finally:
        service.process.kill()
        service.process.wait()


def test_wrong_settings_are_one_line_and_status_2() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _SERVICE],
        env={**os.environ, "TISTREAM_ECHO__PROT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("unknown setting TISTREAM_ECHO__PROT")
    assert answer.stderr.count("\n") == 1


def test_an_inherited_socket_of_all_addresses_is_refused_without_locks(tmp_path: Path) -> None:
    """HOST is 127.0.0.1 all the same: what counts is what listens."""
    service = Service(tmp_path / "log", "0.0.0.0")
    try:
        assert service.process.wait(PATIENCE_S) == 2
    finally:
        service.process.kill()
    assert "0.0.0.0 is reachable from other machines" in service.log.read_text()


def test_a_client_gives_up_an_idle_connection_before_its_server_does() -> None:
    assert client.KEEP_ALIVE_S < serve.KEEP_ALIVE_S < request_deadline.REQUEST_S
