"""A fair queue for the server's threads. Each tenant uses a few threads at a time, and its other requests wait in a
queue of its own.

A rate limit alone does not protect other tenants: a few slow requests (a list at a ts that is not resolved yet, a
status while a peer hangs) hold as many threads as many short ones. A waiting request holds no thread. Only the server's
event loop may start requests; any thread may end one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from tistream.errors import TooManyRequests

PROBES = 8  # threads for the probes of liveness and readiness
WAITING_MAX = 256  # of one queue; above it a request is rejected with TooManyRequests


@dataclass(slots=True)
class _Line:
    taken: int = 0
    # (arrival number, future), oldest first
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)


class RequestSlot:
    """The permission of one request to use a shared thread. It lasts until the request has been answered or needs no
    shared thread any more."""

    def __init__(self, queue: RequestQueue, tenant: Hashable, loop: asyncio.AbstractEventLoop) -> None:
        self._queue, self._tenant, self._loop = queue, tenant, loop
        self._ended = False

    def end(self) -> None:
        """Release the thread, so that the next request can start. Idempotent, and thread-safe."""
        if self._ended:
            return
        self._ended = True
        if asyncio._get_running_loop() is self._loop:
            self._queue.ended(self._tenant)
        else:
            self._loop.call_soon_threadsafe(self._queue.ended, self._tenant)


class RequestQueue:
    """A fair queue of requests: at most `at_once` of one tenant and `total` of all run at a time. The queue of a tenant
    is first in, first out. The next request is from the waiting tenant with the fewest running requests, and among
    equals from the one whose first request has waited longest."""

    def __init__(self, at_once: int, total: int, waiting_max: int = WAITING_MAX) -> None:
        self._at_once, self._total, self._waiting_max = at_once, total, waiting_max
        self._lines: dict[Hashable, _Line] = {}
        self._taken = self._came = 0

    async def begin(self, tenant: Hashable) -> RequestSlot:
        """Wait until a request of `tenant` may run. Returns its slot, which the caller must end. Raises TooManyRequests
        if `waiting_max` requests of the tenant wait already."""
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(tenant, _Line())
        if line.taken < self._at_once and self._taken < self._total:
            self._take(line)
            return RequestSlot(self, tenant, loop)
        if len(line.waiting) >= self._waiting_max:
            raise TooManyRequests(
                f"{self._waiting_max} requests of this tenant or token wait already, which is the maximum: send "
                "fewer at once"
            )
        mine = loop.create_future()
        self._came += 1
        line.waiting.append((self._came, mine))
        try:
            await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                self.ended(tenant)  # the slot was given, but its request was cancelled
            mine.cancel()
            raise
        return RequestSlot(self, tenant, loop)

    def ended(self, tenant: Hashable) -> None:
        """Record that a request of `tenant` has ended, and start the waiting requests that fit now. Only the event
        loop's thread may call it."""
        self._lines[tenant].taken -= 1
        self._taken -= 1
        while self._taken < self._total and (line := self._next()) is not None:
            self._take(line)
            line.waiting.popleft()[1].set_result(None)

    def _take(self, line: _Line) -> None:
        line.taken += 1
        self._taken += 1

    def _next(self) -> _Line | None:
        """The tenant's queue whose first request may run next; None if no waiting request may run. Drops cancelled
        requests and empty queues."""
        for tenant, line in list(self._lines.items()):
            while line.waiting and line.waiting[0][1].done():
                line.waiting.popleft()
            if not line.taken and not line.waiting:
                del self._lines[tenant]
        able = [line for line in self._lines.values() if line.waiting and line.taken < self._at_once]
        return min(able, key=lambda line: (line.taken, line.waiting[0][0]), default=None)


def new_request_queue(threads: int, pulls_max: int) -> RequestQueue:
    """Make the fair queue of a server with `threads` threads, of which pulls use up to `pulls_max`. One tenant gets a
    quarter of the threads that pulls leave, so that other tenants are answered, and compete with few threads for the
    interpreter. All tenants together get all threads that pulls leave, except PROBES, which stay free for health
    checks."""
    left = threads - pulls_max
    return RequestQueue(max(1, left // 4), max(1, left - PROBES))
