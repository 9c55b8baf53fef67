"""Time in a simulated cluster: its timestamp oracle, and what is to happen when. Pure and deterministic."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from tistream.model.ts import LOGICAL_BITS

Action = Callable[[], None]


class Tso:
    """PD's timestamp oracle: strictly rising, as far as physical time allows."""

    def __init__(self, begin_ms: int) -> None:
        self.last = (begin_ms << LOGICAL_BITS) - 1

    def next(self, now_ms: int) -> int:
        """A new timestamp, above all before it."""
        self.last = max(self.last + 1, now_ms << LOGICAL_BITS)
        return self.last


class World:
    """The clock, the oracle, randomness by name, and the agenda."""

    def __init__(self, seed: int, begin_ms: int) -> None:
        self.now_ms = begin_ms
        self._seed = seed
        self._tso = Tso(begin_ms)
        self._agenda: list[tuple[int, int, Action]] = []
        self._count = 0

    def rng(self, name: str) -> random.Random:
        """Randomness of one part's own, so that parts do not shift each other's choices."""
        return random.Random(f"{self._seed}/{name}")

    def ts(self) -> int:
        """A new timestamp."""
        return self._tso.next(self.now_ms)

    def at(self, at_ms: int, action: Action) -> None:
        """Do `action` at `at_ms`, or now if that is past; what is due at one moment happens in the order asked for."""
        self._count += 1
        heapq.heappush(self._agenda, (max(at_ms, self.now_ms), self._count, action))

    def after(self, ms: int, action: Action) -> None:
        """Do `action` in `ms` milliseconds."""
        self.at(self.now_ms + ms, action)

    def run_until(self, to_ms: int) -> None:
        """Do everything that is due up to and at `to_ms`."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= to_ms:
            self.now_ms, _, action = heapq.heappop(agenda)
            action()
        self.now_ms = max(self.now_ms, to_ms)
