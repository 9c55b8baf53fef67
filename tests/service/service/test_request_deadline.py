"""Who sends no whole request in time is let go; who waits for an answer is not."""
# Attack: connections without a request, with half a head or body, or a byte now and then: closed; so are complete
#   answers that are not read

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import h11
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from support.waiting import PATIENCE_S, eventually
from tistream.service.http.request_deadline import DeadlinedProtocol

LARGE = 16 << 20
HEAD = b"POST /whole HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"


class Timeless(DeadlinedProtocol):
    """Its time is over when a test says so."""

    seconds, still_max = 2 * PATIENCE_S, 2


@dataclass
class Served:
    """A server and its one connection; `answer` lets /long answer."""

    server: uvicorn.Server
    answer: threading.Semaphore
    asked: threading.Semaphore

    @property
    def port(self) -> int:
        number: int = self.server.servers[0].sockets[0].getsockname()[1]
        return number

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.server.servers[0].get_loop()

    @property
    def connections(self) -> list[DeadlinedProtocol]:
        return list(self.server.server_state.connections)  # type: ignore[arg-type]

    def connection(self) -> DeadlinedProtocol:
        eventually(lambda: len(self.connections) == 1)
        return self.connections[0]

    def time_passes(self) -> None:
        """The time that the connection has is over, if it has one: what its timer would do is done."""
        done = threading.Event()

        def fire() -> None:
            for one in self.connections:
                timer = one._deadline
                if timer is not None and not timer.cancelled():
                    timer.cancel()
                    one._over()
            done.set()

        self.loop.call_soon_threadsafe(fire)
        assert done.wait(PATIENCE_S)


@pytest.fixture
def served() -> Iterator[Served]:
    app, answer, asked = FastAPI(), threading.Semaphore(0), threading.Semaphore(0)

    @app.get("/long")
    def long() -> str:
        asked.release()
        assert answer.acquire(timeout=PATIENCE_S)
        return "answered"

    @app.get("/large")
    def large() -> Response:
        return Response(bytes(LARGE))

    @app.post("/whole")
    async def whole(request: Request) -> int:
        return len(await request.body())

    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_config=None, http=Timeless, timeout_keep_alive=int(PATIENCE_S)
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield Served(server, answer, asked)
    server.should_exit = True
    thread.join(PATIENCE_S)


def connected(served: Served) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", served.port))
    one.settimeout(PATIENCE_S)
    return one


def is_closed(one: socket.socket) -> bool:
    """Waits for what comes next: the end, and not an answer."""
    try:
        return one.recv(100) == b""
    except ConnectionError:  # with bytes of ours that were not read
        return True


def has_read(served: Served, begun: bytes) -> bool:
    """Whether the server has got as far, of a request that is not whole."""
    conn = served.connection().conn
    if begun.endswith(b"12345"):
        return conn.their_state is h11.SEND_BODY and conn._receive_buffer is not None
    return bytes(conn.trailing_data[0]) == begun


@pytest.mark.parametrize("begun", [b"", HEAD, HEAD + b"\r\n12345"], ids=["nothing", "half-a-head", "half-a-body"])
def test_what_is_not_whole_in_time_is_closed(served: Served, begun: bytes) -> None:
    with connected(served) as one:
        one.sendall(begun)
        eventually(lambda: has_read(served, begun))
        served.time_passes()
        assert is_closed(one)


def test_a_byte_now_and_then_gains_no_time(served: Served) -> None:
    """Else each of them would begin the time anew."""
    with connected(served) as one:
        timer, sent = served.connection()._deadline, HEAD + b"x-slow: "
        assert timer is not None
        one.sendall(sent)
        for _ in range(5):
            one.sendall(b"a")
            sent += b"a"
            eventually(lambda sent=sent: has_read(served, sent))
            assert served.connection()._deadline is timer
            assert not timer.cancelled()
        served.time_passes()
        assert is_closed(one)


def test_an_answer_may_take_longer_and_the_next_request_has_its_own_time(served: Served) -> None:
    with connected(served) as one:
        for _ in range(2):
            one.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
            assert served.asked.acquire(timeout=PATIENCE_S)
            for _ in range(3):
                served.time_passes()
            served.answer.release()
            answer = b""
            while not answer.endswith(b'"answered"'):
                more = one.recv(1_000)
                assert more, answer
                answer += more
            eventually(lambda: served.connection()._deadline is not None)
        one.sendall(HEAD + b"\r\n12345")
        eventually(lambda: has_read(served, HEAD + b"\r\n12345"))
        served.time_passes()
        assert is_closed(one)


def asked_for_much(served: Served) -> socket.socket:
    one = socket.socket()
    one.settimeout(PATIENCE_S)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.connect(("127.0.0.1", served.port))
    one.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
    eventually(lambda: left(served) > 0)
    return one


def left(served: Served) -> int:
    """Bytes of the answer that the system has not taken yet."""
    return sum(one.transport.get_write_buffer_size() for one in served.connections)


def test_a_whole_answer_that_nobody_reads_is_not_kept(served: Served) -> None:
    with asked_for_much(served):
        for _ in range(Timeless.still_max):
            served.time_passes()
            assert len(served.connections) == 1

        def let_go() -> bool:
            if served.connections:
                served.time_passes()
            return not served.connections

        eventually(let_go)


def test_an_answer_that_is_read_slowly_comes_whole(served: Served) -> None:
    with asked_for_much(served) as one:
        got, steps = 0, 12
        while got < LARGE:
            if left(served):  # else the system has it all, and the connection may go
                served.time_passes()
            before, until = left(served), got + LARGE // steps
            while got < min(until, LARGE):
                more = one.recv(1 << 16)
                assert more, f"{got} of {LARGE} bytes"
                got += len(more)
            eventually(lambda before=before: left(served) < before or before == 0)
