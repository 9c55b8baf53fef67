"""Delays 4xx answers by the time that reject_throttle.py computes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tistream.concurrency import Event
from tistream.wire.tokens import tenant_of_grants
from tistream_api.admission.reject_throttle import RejectionLimit, network_of
from tistream_api.auth.callers import Caller

BODY_BYTES_MAX = 64 << 10  # the request body stays in memory during the delay
HEADER = "tistream-waited-ms"  # header of a delayed rejection: its delay, in ms
_LOOK_S = 0.2  # how often a delayed rejection checks whether the process is stopping


class DelayedRejections:
    """Middleware that delays 4xx answers (rejections). It wraps the checks of access (gate.py, metrics_gate.py), which
    record the caller in the request's state.

    A rejection is counted for the caller's tenant; for the caller itself if it has no tenant; for the client's address
    if the request is not authenticated. A rejection is not delayed if too many others are delayed already, or if the
    request body is large: then it is sent at once, and its connection is closed. When the process stops, all delayed
    rejections are sent.
    """

    def __init__(
        self,
        app: ASGIApp,
        refusals: RejectionLimit,
        stopping: Event,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._app, self._refusals, self._stopping, self._sleep = app, refusals, stopping, sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def held(message: Message) -> None:
            if message["type"] == "http.response.start" and 400 <= message["status"] < 500:
                await self._hold(scope, message, received)
            await send(message)

        await self._app(scope, counted, held)

    async def _hold(self, scope: Scope, start: Message, received: int) -> None:
        sender = _sender(scope)
        wait_s = self._refusals.wait_s(sender)
        if wait_s <= 0:
            return
        if received > BODY_BYTES_MAX or not self._refusals.begin(sender):
            MutableHeaders(scope=start)["connection"] = "close"
            return
        left_s = wait_s
        try:
            while left_s > 0 and not self._stopping.is_set():
                await self._sleep(min(left_s, _LOOK_S))
                left_s -= min(left_s, _LOOK_S)
        finally:
            self._refusals.end(sender)
        waited_ms = scope["state"]["waited_ms"] = round(1000 * (wait_s - left_s))
        MutableHeaders(scope=start)[HEADER] = str(waited_ms)


def _sender(scope: Scope) -> str:
    caller: Caller | None = scope["state"].get("caller")
    if caller is not None:
        of = tenant_of_grants(caller.grants)
        return f"caller {caller.name}" if of is None else f"tenant {'/'.join(of)}"
    client = scope.get("client")
    return f"address {'' if client is None else network_of(client[0])}"
