"""Connections on which no whole request comes in time are closed: whoever opens many, and sends nothing or a byte now
and then, would hold them for ever, and needs no token for it."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 20.0
_NOT_WHOLE = (h11.IDLE, h11.SEND_BODY)


class DeadlinedProtocol(H11Protocol):
    """uvicorn's, and `seconds` for a request, head and body, from when the connection was made or the answer before
    it had ended. How long its own answer takes is not limited."""

    seconds = REQUEST_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new one."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._end()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The next request may come."""
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
        if self.flow.read_paused:  # what has come is more than was read: it is we who are late
            self._begin()
        elif self.conn.their_state in _NOT_WHOLE:
            self.transport.close()
