"""How soon a refusal is told. Each costs its sender nothing and the server some milliseconds, and without a valid token
there is no tenant whose limit it would count for: so who is refused again and again waits for it, and who asks one
question after the other asks no more of them than are answered. What is not refused never waits here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tistream.clock import Clock
from tistream_api.callers import Caller
from tistream_api.rates import Bucket

WAIT_MAX_S = 5.0  # a refusal that waits holds its connection, and some memory
REMEMBERED = 4_096  # who was refused; beyond, those are forgotten that were refused longest ago
_PREFIX = 64  # of an IPv6 address: who has one has all that begin so


@dataclass(slots=True)
class Refusals:
    """`per_second` of each who is refused come at once; 0: all do. For one thread, that of the event loop."""

    clock: Clock
    per_second: float
    _of: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def wait_s(self, who: str) -> float:
        """One more was refused: for how many seconds to wait before it is told."""
        now_ms = self.clock.monotonic_ms()
        bucket = self._bucket(who, now_ms)
        wait_s = bucket.take(now_ms, self.per_second)
        if not 0 < wait_s < WAIT_MAX_S:  # nobody owes more than is waited for: it would be the next one's
            return min(wait_s, WAIT_MAX_S)
        return bucket.charge(now_ms, self.per_second, 1)

    def _bucket(self, who: str, now_ms: int) -> Bucket:
        found = self._of.get(who)
        if found is None:
            found = self._of[who] = Bucket(now_ms)
        self._of.move_to_end(who)
        while len(self._of) > REMEMBERED:
            self._of.popitem(last=False)
        return found


class SlowRefusals:
    """Middleware, outside of the gate, which notes who was let in: that one is who is refused, else its address."""

    def __init__(
        self, app: ASGIApp, refusals: Refusals, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._app, self._refusals, self._sleep = app, refusals, sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def held(message: Message) -> None:
            if message["type"] == "http.response.start" and 400 <= message["status"] < 500:
                wait_s = self._refusals.wait_s(_who(scope))
                if wait_s > 0:
                    await self._sleep(wait_s)
            await send(message)

        await self._app(scope, receive, held)


def _who(scope: Scope) -> str:
    caller: Caller | None = scope.get("state", {}).get("caller")
    if caller is not None:
        return f"caller {caller.name}"
    client = scope.get("client")
    return f"address {'' if client is None else network_of(client[0])}"


def network_of(host: str) -> str:
    """Whose address it is: of IPv6 the first 64 bits, which one machine has to itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address, _PREFIX), strict=False))
    return str(address)
