"""Rejects HTTP/1.1 requests whose head is ambiguous. h11 accepts a bare LF as a line's end, folded lines, and a length
together with chunked encoding. A proxy in front may interpret such a head as a different request ("request smuggling",
RFC 9112, 11.2). Here it is an error: the server answers 400 and closes the connection."""

from __future__ import annotations

import re

import h11
from h11._receivebuffer import ReceiveBuffer

_END = re.compile(rb"\n\r?\n")
_LOOSE = re.compile(rb"(?<!\r)\n|\n[ \t]")


class _StrictBuffer(ReceiveBuffer):
    """h11's receive buffer, which here rejects bare LFs and folded lines. h11 reads heads and trailers of chunked
    bodies only by `maybe_extract_lines`."""

    _seen = 0  # offset up to which lines were checked, so that they are not checked again with each byte

    def _extract(self, count: int) -> bytearray:
        self._seen = 0
        return super()._extract(count)

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Override of h11's method, with the same result. Raises h11.LocalProtocolError for a bare LF or a folded line;
        h11 converts it to a RemoteProtocolError."""
        data = self._data
        if data[:2] != b"\r\n":  # otherwise there are no lines
            end = _END.search(data, max(0, self._seen - 2))
            if _LOOSE.search(data, self._seen, len(data) if end is None else end.end()):
                raise h11.LocalProtocolError("a line that does not end with CR LF, or continues in the next one")
            self._seen = max(0, len(data) - 1)
        return super().maybe_extract_lines()


class StrictConnection(h11.Connection):
    """The server's side of an HTTP/1.1 connection, with the checks of this module."""

    def __init__(self, incomplete_bytes_max: int) -> None:
        super().__init__(h11.SERVER, incomplete_bytes_max)
        self._receive_buffer = _StrictBuffer()

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Override of h11's method, with the same result. Raises h11.RemoteProtocolError if the request defines the end
        of its body in two ways."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {bytes(name) for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("Transfer-Encoding with Content-Length, or in HTTP/1.0")
        return event
