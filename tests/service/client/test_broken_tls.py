"""What the client does if TLS breaks inside an answer."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from support.certificates import Authority
from tistream_client import AsyncTiStream, NoAnswer, TiStream

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server that sends the head of an answer, and then bytes that are no TLS; and the authority of its
    certificate."""
    authority = Authority(tmp_path, "authority")
    own = authority.sign("server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own.cert_file, own.key_file)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening.accept()[0] as plain:
            below = socket.socket(fileno=os.dup(plain.fileno()))
            with below, tls.wrap_socket(plain, server_side=True) as connection:
                connection.recv(65_536)
                connection.sendall(HEAD)
                below.sendall(b"no TLS at all" * 9)
                connection.close()

    thread = Thread(target=serve)
    thread.start()
    yield f"https://127.0.0.1:{listening.getsockname()[1]}", Path(authority.file)
    thread.join()
    listening.close()


def test_an_answer_that_is_no_tls_is_no_answer(broken: tuple[str, Path]) -> None:
    url, ca_file = broken
    with TiStream(url, ca_file=ca_file, retry_for=0) as client, pytest.raises(NoAnswer, match="no answer from https:"):
        client.tenant("7", "acme").databases()


def test_in_asyncio_it_is_none_either(broken: tuple[str, Path]) -> None:
    url, ca_file = broken

    async def read() -> None:
        async with AsyncTiStream(url, ca_file=ca_file, retry_for=0) as client:
            await client.tenant("7", "acme").databases()

    with pytest.raises(NoAnswer, match="no answer from https:"):
        asyncio.run(read())
