"""An HTTP client that keeps to no rules: it sends bytes unchanged, and reads answers or not. asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """`head` with its status line; the body without its chunks' lengths."""

    status: int
    head: bytes
    body: bytes

    @property
    def retry_after(self) -> bool:
        """Whether the answer has a Retry-After header."""
        return b"\r\nretry-after:" in self.head.lower()


def request(method: str, path: bytes, token: str | None, body: bytes = b"", length: int | None = None) -> bytes:
    """A whole request; `length` is what it says of its body."""
    lines = [method.encode() + b" " + path + b" HTTP/1.1", b"host: tistream", b"tistream-cause: same"]
    if token is not None:
        lines.append(b"authorization: Bearer " + token.encode())
    if body or length is not None:
        lines += [b"content-type: application/json", b"content-length: %d" % (len(body) if length is None else length)]
    return b"\r\n".join([*lines, b"", body])


class Connection:
    """One, opened at the first question and again whenever the other side has closed it."""

    def __init__(self, url: str, receive_bytes: int = 0) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._receive_bytes = parts.hostname or "", parts.port or 80, receive_bytes
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def write(self, data: bytes) -> None:
        """Send bytes, and read nothing."""
        if self._writer is None:
            sock = socket.socket()
            if self._receive_bytes:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (self._host, self._port))
            limit = self._receive_bytes or HEAD_BYTES_MAX
            self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=limit)
        self._writer.write(data)
        await self._writer.drain()

    async def ask(self, data: bytes, seconds: float = 60.0) -> Answer | None:
        """Send a request and return the answer; None if the connection was closed instead."""
        try:
            async with asyncio.timeout(seconds):
                await self.write(data)
                return await self._answer()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.close()
            return None

    async def _answer(self) -> Answer:
        reader = self._reader
        assert reader is not None
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        body = b""
        if b"transfer-encoding: chunked" in lowered:
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        elif b"content-length: " in lowered:
            body = await reader.readexactly(int(lowered.split(b"content-length: ")[1].split(b"\r\n")[0]))
        if b"connection: close" in lowered:
            self.close()
        return Answer(int(head.split(b" ", 2)[1]), head, body)

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
        self._reader = self._writer = None
