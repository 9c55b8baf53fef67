"""HTTP/1.1 heads that can be read in one way alone. h11 takes bare LF as a line's end, lines that go on in the next,
and a length beside chunks: a proxy in front may see other requests in the same bytes (RFC 9112, 11.2). Here all of that
is an error, which the protocol answers with 400 and the end of the connection."""

from __future__ import annotations

import re

import h11
from h11._receivebuffer import ReceiveBuffer

_END = re.compile(rb"\n\r?\n")
_LOOSE = re.compile(rb"(?<!\r)\n|\n[ \t]")


class _StrictBuffer(ReceiveBuffer):
    """h11 reads heads and trailers of chunked bodies by `maybe_extract_lines`, and there alone takes loose ones."""

    _seen = 0  # up to where lines were looked at: not again with each byte that comes

    def _extract(self, count: int) -> bytearray:
        self._seen = 0
        return super()._extract(count)

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """h11's. Raises h11.LocalProtocolError, which h11 passes on as the peer's."""
        data = self._data
        if data[:2] != b"\r\n":  # else there are no lines
            end = _END.search(data, max(0, self._seen - 2))
            if _LOOSE.search(data, self._seen, len(data) if end is None else end.end()):
                raise h11.LocalProtocolError("a line that does not end with CR LF, or goes on in the next one")
            self._seen = max(0, len(data) - 1)
        return super().maybe_extract_lines()


class StrictConnection(h11.Connection):
    """A server's."""

    def __init__(self, incomplete_bytes_max: int) -> None:
        super().__init__(h11.SERVER, incomplete_bytes_max)
        self._receive_buffer = _StrictBuffer()

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """h11's. Raises h11.RemoteProtocolError for two ways to say where the body ends."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {bytes(name) for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("Transfer-Encoding with Content-Length, or in HTTP/1.0")
        return event
