"""What may be read in two ways is no request: 400, and the connection ends, with nothing behind it answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI, Request

from support.waiting import PATIENCE_S, eventually
from tistream.service.http.request_deadline import DeadlinedProtocol

HOST = b"host: x\r\n"
NEXT = b"POST /whole HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nend"
CHUNKS = b"POST /whole HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
LOOSE = {
    "both-lengths": CHUNKS + b"content-length: 5\r\n\r\n0\r\n\r\n",
    "both-lengths-turned": b"POST /whole HTTP/1.1\r\nContent-Length: 5\r\n"
    + CHUNKS.partition(b"\r\n")[2]
    + b"\r\n0\r\n\r\n",
    "chunks-in-1.0": CHUNKS.replace(b"1.1", b"1.0") + b"\r\n0\r\n\r\n",
    "two-lengths": b"POST /whole HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "lf-alone": b"GET /whole HTTP/1.1\nhost: x\n\n",
    "lf-in-the-head": b"GET /whole HTTP/1.1\r\nhost: x\nx-more: 1\r\n\r\n",
    "lf-at-its-end": b"GET /whole HTTP/1.1\r\nhost: x\r\n\n",
    "lf-before-its-end": b"GET /whole HTTP/1.1\r\nhost: x\n\r\n",
    "lf-before-it": b"\nGET /whole HTTP/1.1\r\nhost: x\r\n\r\n",
    "cr-alone": b"GET /whole HTTP/1.1\r\nhost: x\r\nx-more: 1\rx-other: 2\r\n\r\n",
    "folded": b"GET /whole HTTP/1.1\r\nhost: x\r\nx-more: 1\r\n 2\r\n\r\n",
    "folded-by-a-tab": b"GET /whole HTTP/1.1\r\nhost: x\r\nx-more: 1\r\n\t2\r\n\r\n",
    "folded-first": b"GET /whole HTTP/1.1\r\n host: x\r\n\r\n",
}
LOOSE_TRAILERS = {
    "lf-at-the-end": CHUNKS + b"\r\n3\r\nabc\r\n0\r\n\n",
    "lf": CHUNKS + b"\r\n3\r\nabc\r\n0\r\nx-a: 1\n\r\n",
    "folded": CHUNKS + b"\r\n3\r\nabc\r\n0\r\nx-a: 1\r\n 2\r\n\r\n",
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = FastAPI()

    @app.post("/whole")
    async def whole(request: Request) -> str:
        return f"got {(await request.body()).decode()}"

    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, http=DeadlinedProtocol))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(PATIENCE_S)


def told(port: int, pieces: list[bytes]) -> bytes:
    """All that is answered until the connection ends."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.settimeout(PATIENCE_S)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = b""
        try:
            for piece in pieces:
                one.sendall(piece)
            while more := one.recv(1 << 16):
                answer += more
        except ConnectionError:  # it has ended, with bytes of ours that were not read
            pass
        return answer


@pytest.mark.parametrize("request_bytes", LOOSE.values(), ids=LOOSE)
def test_a_head_that_can_be_read_in_two_ways_is_refused(port: int, request_bytes: bytes) -> None:
    answer = told(port, [request_bytes + NEXT])
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"got end" not in answer


@pytest.mark.parametrize("request_bytes", LOOSE.values(), ids=LOOSE)
def test_nor_when_it_comes_byte_by_byte(port: int, request_bytes: bytes) -> None:
    """Whatever the network cuts it into. What ends early is not read on."""
    answer = told(port, [bytes([one]) for one in request_bytes])
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert b"got" not in answer


@pytest.mark.parametrize("request_bytes", LOOSE.values(), ids=LOOSE)
def test_nor_behind_one_that_is_right(port: int, request_bytes: bytes) -> None:
    answer = told(port, [NEXT + request_bytes + NEXT])
    assert answer.count(b"got end") == 1
    assert answer.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 400 " in answer


@pytest.mark.parametrize("request_bytes", LOOSE_TRAILERS.values(), ids=LOOSE_TRAILERS)
def test_the_end_of_chunks_is_as_strict(port: int, request_bytes: bytes) -> None:
    assert b"got" not in told(port, [request_bytes + NEXT])


def test_what_is_right_is_answered_however_it_is_cut(port: int) -> None:
    last = NEXT.replace(b"host: x\r\n", b"host: x\r\nconnection: close\r\n")
    right = NEXT + CHUNKS + b"\r\n2\r\na\n\r\n2\r\n b\r\n0\r\nx-a: 1\r\n\r\n" + CHUNKS + b"\r\n0\r\n\r\n" + last
    for pieces in ([right], [bytes([one]) for one in right]):
        answer = told(port, pieces)
        assert answer.count(b"HTTP/1.1 200 ") == 4
        assert b'"got a\\n b"' in answer
