"""Closes connections on which no complete request arrives in time. Without that, a client that has no token could open
many connections, send nothing or a byte now and then, and keep them forever."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tistream.service.http.strict_http import StrictConnection

REQUEST_S = 20.0
HEAD_BYTES_MAX = 16 << 10  # uvicorn's limit
STILL_MAX = 6  # if the client has read nothing of a complete answer for this number of periods, it has gone
_NOT_WHOLE = (h11.IDLE, h11.SEND_BODY)


class DeadlinedProtocol(H11Protocol):
    """uvicorn's protocol with a deadline: a request, head and body, must arrive within `seconds` after the connection
    was made or the previous answer ended. The duration of an answer is not limited. A client may read it slowly, as
    long as it reads."""

    seconds, still_max = REQUEST_S, STILL_MAX
    _deadline: asyncio.TimerHandle | None = None
    _left, _still = 0, 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection(HEAD_BYTES_MAX)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._end()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request with 400, as uvicorn does. If an answer has begun already, close the connection
        instead."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        super().on_response_complete()
        self._begin()

    def _begin(self) -> None:
        self._end()
        self._deadline = self.loop.call_later(self.seconds, self._over)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _over(self) -> None:
        # Bytes that arrived have not been read, or the body was not requested yet: the server is late, not the client.
        if self.flow.read_paused or self.conn.they_are_waiting_for_100_continue:
            self._begin()
        elif self.conn.their_state in _NOT_WHOLE or self.transport.is_closing():
            self._let_go()

    def _let_go(self) -> None:
        left: int = self.transport.get_write_buffer_size()
        self._still = self._still + 1 if left == self._left else 0
        self._left = left
        if not left:
            self.transport.close()
        elif self._still < self.still_max:  # an answer is being sent, so the connection stays open
            self._begin()
        else:
            self.transport.abort()
