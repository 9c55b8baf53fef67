"""Computes how long to wait before a child process is started again: not at all after a long run, and ever longer after
short runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

SECOND_MS = 200
LONGEST_MS = 5_000
LONG_LIFE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Restarts:
    """The delay before the next start of a child, in ms, computed from how long its last runs lasted."""

    wait_ms: int = 0
    count: int = 0

    def after(self, lived_ms: int) -> Restarts:
        """The state after a run that lasted `lived_ms`. Its `wait_ms` is the delay before the next start."""
        if self.count == 0 or lived_ms >= LONG_LIFE_MS:
            return replace(self, wait_ms=0, count=self.count + 1)
        return replace(self, wait_ms=min(max(SECOND_MS, self.wait_ms * 2), LONGEST_MS), count=self.count + 1)
