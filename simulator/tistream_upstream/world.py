"""Time in a simulated cluster: a clock, a timestamp oracle, and scheduled actions. Deterministic, without I/O."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from tistream.model.ts import LOGICAL_BITS

Action = Callable[[], None]


class Tso:
    """PD's timestamp oracle: strictly increasing timestamps that follow physical time."""

    def __init__(self, begin_ms: int) -> None:
        self.last = (begin_ms << LOGICAL_BITS) - 1

    def next(self, now_ms: int) -> int:
        """Take a timestamp: it is above all earlier ones."""
        self.last = max(self.last + 1, now_ms << LOGICAL_BITS)
        return self.last


class World:
    """The clock, the timestamp oracle, random generators by name, and the scheduled actions."""

    def __init__(self, seed: int, begin_ms: int) -> None:
        self.now_ms = begin_ms
        self._seed = seed
        self._tso = Tso(begin_ms)
        self._agenda: list[tuple[int, int, Action]] = []
        self._count = 0

    def rng(self, name: str) -> random.Random:
        """The random generator with this name. Each part of the cluster has its own, so parts do not influence each
        other's choices."""
        return random.Random(f"{self._seed}/{name}")

    def ts(self) -> int:
        """Take a timestamp of the present time: it is above all earlier ones."""
        return self._tso.next(self.now_ms)

    def at(self, at_ms: int, action: Action) -> None:
        """Schedule `action` at `at_ms`, or now if that time has passed. Actions at the same time run in the order in
        which they were scheduled."""
        self._count += 1
        heapq.heappush(self._agenda, (max(at_ms, self.now_ms), self._count, action))

    def after(self, ms: int, action: Action) -> None:
        """Schedule `action` in `ms` milliseconds."""
        self.at(self.now_ms + ms, action)

    def run_until(self, to_ms: int) -> None:
        """Run the actions that are due at or before `to_ms`, and advance the clock to it."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= to_ms:
            self.now_ms, _, action = heapq.heappop(agenda)
            action()
        self.now_ms = max(self.now_ms, to_ms)
