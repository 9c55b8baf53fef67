"""Who is answered when: each tenant has a few of the server's threads at a time, and a line of its own for the rest.

A rate alone does not keep a tenant from taking what others need: few questions that are long in being answered (a list
of a time that has not come, a status while a peer hangs) hold as many threads as many short ones. Whoever stands in
line holds none. For one event loop, that of the server; a turn may be ended by any thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from tistream.errors import TooManyRequests

PROBES = 8  # threads for whoever asks whether the process lives
WAITING_MAX = 256  # of one line: beyond, whoever comes is told to come again


@dataclass(slots=True)
class _Line:
    taken: int = 0
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)  # by when they came


class Turn:
    """One request's, until it has been answered, or needs no thread of the common ones any more."""

    def __init__(self, turns: Turns, who: Hashable, loop: asyncio.AbstractEventLoop) -> None:
        self._turns, self._who, self._loop = turns, who, loop
        self._ended = False

    def end(self) -> None:
        """The next one's. Again changes nothing."""
        if self._ended:
            return
        self._ended = True
        if asyncio._get_running_loop() is self._loop:
            self._turns.ended(self._who)
        else:
            self._loop.call_soon_threadsafe(self._turns.ended, self._who)


class Turns:
    """`at_once` of each line, in the order in which they came, and `total` of all: of the lines that wait, that one is
    next which has the fewest; of those that have as few, the one whose first has waited longest."""

    def __init__(self, at_once: int, total: int, waiting_max: int = WAITING_MAX) -> None:
        self._at_once, self._total, self._waiting_max = at_once, total, waiting_max
        self._lines: dict[Hashable, _Line] = {}
        self._taken = self._came = 0

    async def begin(self, who: Hashable) -> Turn:
        """Wait for it. Raises TooManyRequests."""
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(who, _Line())
        if line.taken < self._at_once and self._taken < self._total:
            self._take(line)
            return Turn(self, who, loop)
        if len(line.waiting) >= self._waiting_max:
            raise TooManyRequests(f"{self._waiting_max} requests wait to be answered already, as many as may")
        mine = loop.create_future()
        self._came += 1
        line.waiting.append((self._came, mine))
        try:
            await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                self.ended(who)  # it was given, and nobody takes it
            mine.cancel()
            raise
        return Turn(self, who, loop)

    def ended(self, who: Hashable) -> None:
        """One has ended: the next one's begins. By the event loop's thread alone."""
        self._lines[who].taken -= 1
        self._taken -= 1
        while self._taken < self._total and (line := self._next()) is not None:
            self._take(line)
            line.waiting.popleft()[1].set_result(None)

    def _take(self, line: _Line) -> None:
        line.taken += 1
        self._taken += 1

    def _next(self) -> _Line | None:
        """The line whose first is next; those who have left are forgotten."""
        for who, line in list(self._lines.items()):
            while line.waiting and line.waiting[0][1].done():
                line.waiting.popleft()
            if not line.taken and not line.waiting:
                del self._lines[who]
        able = [line for line in self._lines.values() if line.waiting and line.taken < self._at_once]
        return min(able, key=lambda line: (line.taken, line.waiting[0][0]), default=None)


def new_turns(threads: int, pulls_max: int) -> Turns:
    """Of the threads that pulls leave one tenant may have a quarter, so that others are answered, and are not one of
    very many that want the interpreter; and all together all but those that answer probes."""
    left = threads - pulls_max
    return Turns(max(1, left // 4), max(1, left - PROBES))
