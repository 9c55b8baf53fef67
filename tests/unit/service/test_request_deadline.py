"""Who sends no whole request in time is let go; who waits for an answer is not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI, Request

from support.http_world import eventually
from tistream.service.request_deadline import DeadlinedProtocol

SECONDS = 1.0
HEAD = b"POST /whole HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"


class Hurried(DeadlinedProtocol):
    seconds = SECONDS


@pytest.fixture
def port() -> Iterator[int]:
    app = FastAPI()

    @app.get("/long")
    async def long() -> str:
        await asyncio.sleep(3 * SECONDS)
        return "answered"

    @app.post("/whole")
    async def whole(request: Request) -> int:
        return len(await request.body())

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, http=Hurried, timeout_keep_alive=60)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(30)


def connected(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port))
    one.settimeout(60)
    return one


@pytest.mark.parametrize("begun", [b"", HEAD, HEAD + b"\r\n12345"], ids=["nothing", "half-a-head", "half-a-body"])
def test_what_is_not_whole_in_time_is_closed(port: int, begun: bytes) -> None:
    with connected(port) as one:
        one.sendall(begun)
        assert one.recv(100) == b""


def closed_while_sent_to(one: socket.socket) -> bool:
    """A byte, and whether the other side has closed by then or soon after."""
    try:
        one.sendall(b"a")
        return one.recv(100) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_byte_now_and_then_gains_no_time(port: int) -> None:
    """Else each of them would begin the time anew."""
    with connected(port) as one:
        one.sendall(HEAD + b"x-slow: ")
        one.settimeout(SECONDS / 10)
        assert not closed_while_sent_to(one)
        assert any(closed_while_sent_to(one) for _ in range(600))


def test_an_answer_may_take_longer_and_the_next_request_has_its_own_time(port: int) -> None:
    with connected(port) as one:
        for _ in range(2):
            one.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b'"answered"'):
                more = one.recv(1_000)
                assert more, answer
                answer += more
        one.sendall(HEAD + b"\r\n12345")
        assert one.recv(100) == b""
