"""Who sends no whole request in time is let go; who waits for an answer is not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from support.waiting import eventually
from tistream.service.request_deadline import DeadlinedProtocol

SECONDS = 1.0
LARGE = 16 << 20
HEAD = b"POST /whole HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"


class Hurried(DeadlinedProtocol):
    seconds, still_max = SECONDS, 2


@pytest.fixture
def server() -> Iterator[uvicorn.Server]:
    app = FastAPI()

    @app.get("/long")
    async def long() -> str:
        await asyncio.sleep(3 * SECONDS)
        return "answered"

    @app.get("/large")
    def large() -> Response:
        return Response(bytes(LARGE))

    @app.post("/whole")
    async def whole(request: Request) -> int:
        return len(await request.body())

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, http=Hurried, timeout_keep_alive=60)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield server
    server.should_exit = True
    thread.join(30)


@pytest.fixture
def port(server: uvicorn.Server) -> int:
    number: int = server.servers[0].sockets[0].getsockname()[1]
    return number


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


def asked_for_much(port: int) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.connect(("127.0.0.1", port))
    one.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
    return one


def test_a_whole_answer_that_nobody_reads_is_not_kept(server: uvicorn.Server, port: int) -> None:
    with asked_for_much(port):
        eventually(lambda: len(server.server_state.connections) == 1)
        eventually(lambda: not server.server_state.connections)


def test_an_answer_that_is_read_slowly_comes_whole(port: int) -> None:
    with asked_for_much(port) as one:
        one.settimeout(60)
        got, steps = 0, 12
        while got < LARGE:
            time.sleep(SECONDS / 3)
            until = got + LARGE // steps
            while got < min(until, LARGE):
                more = one.recv(1 << 16)
                assert more, f"{got} of {LARGE} bytes"
                got += len(more)
