"""One cause id from the first request through every service, thread and log line that has a part in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry

from support import plain_http
from support.http_world import Server
from support.logged_lines import logged_lines
from support.waiting import eventually
from tistream import cause
from tistream.concurrency import new_executor
from tistream.errors import Unavailable
from tistream.service.http.app import new_app
from tistream.service.worker import Loop
from tistream.wire.clients.client import HttpClient

log = logging.getLogger(__name__)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged meanwhile."""
    with logged_lines() as stream:
        yield stream


def logged(lines: io.StringIO, message: str) -> list[Any]:
    """The cause ids of lines with this message."""
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [line.get("cause_id") for line in found if line["message"] == message]


def app(new_id: str) -> FastAPI:
    return new_app("one", ready=lambda: None, registry=CollectorRegistry(), new_id=lambda: new_id)


@pytest.fixture
def far() -> Iterator[Server]:
    """A service that is asked by another."""
    one = app("far")

    @one.get("/work")
    def work() -> StreamingResponse:
        log.info("working")

        def pieces() -> Iterator[bytes]:
            log.info("in the middle")
            yield b"done"

        return StreamingResponse(pieces())

    @one.get("/fails")
    def fails() -> None:
        raise ValueError("nobody expected that")

    server = Server(one)
    yield server
    server.stop()


@pytest.fixture
def near(far: Server) -> Iterator[Server]:
    """A service that asks `far` for whatever it is asked."""
    one, http, executor = app("near"), HttpClient(), new_executor("helpers", 1)

    @one.get("/{path}")
    def forward(path: str) -> str:
        asked = executor.submit(http.request, "GET", f"{far.url}/{path}")
        return asked.result().text

    server = Server(one)
    yield server
    server.stop()


def test_a_call_from_service_to_service_keeps_its_cause(near: Server, lines: io.StringIO) -> None:
    with cause.caused_by("user-1"):
        answer = HttpClient().request("GET", f"{near.url}/work")
    assert answer.headers[cause.HEADER] == "user-1"
    assert logged(lines, "working") == logged(lines, "in the middle") == ["user-1"]


def test_a_request_without_a_cause_is_given_one(near: Server, lines: io.StringIO) -> None:
    answer = HttpClient().request("GET", f"{near.url}/work")
    assert answer.headers[cause.HEADER] == "near"
    assert logged(lines, "working") == ["near"]


def test_a_problem_names_the_cause_under_which_the_failing_service_has_logged_it(
    near: Server, lines: io.StringIO
) -> None:
    answer = plain_http.get(f"{near.url}/fails", headers={cause.HEADER: "user-2"})
    assert answer.json()["cause_id"] == "user-2"
    assert answer.headers[cause.HEADER] == "user-2"
    assert set(logged(lines, "request failed")) == {"user-2"}


@pytest.mark.parametrize("text", ["", "a b", "x" * 65, 'a"b', "a\x7f", "ä"])
def test_a_cause_of_another_form_is_not_taken(near: Server, text: str) -> None:
    answer = plain_http.get(f"{near.url}/work", headers={cause.HEADER: text.encode()})
    assert answer.headers[cause.HEADER] == "near"


def test_each_run_of_a_loop_is_a_cause_of_its_own(lines: io.StringIO) -> None:
    numbers = iter("123456789")

    def body() -> int:
        log.info("round")
        if len(logged(lines, "round")) == 2:
            raise Unavailable("gone")
        return 3_600_000 if len(logged(lines, "round")) > 2 else 0

    loop = Loop("sweep", body, interval_ms=0, new_id=lambda: next(numbers)).start()
    eventually(lambda: len(logged(lines, "round")) == 3)
    loop.stop()
    assert logged(lines, "round") == ["sweep-1", "sweep-2", "sweep-3"]
    assert logged(lines, "loop failed") == ["sweep-2"]
    assert cause.current() is None
