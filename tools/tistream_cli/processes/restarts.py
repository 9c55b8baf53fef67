"""Computes the restart delays of child processes: none after a long run, increasing after short runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

SECOND_MS = 200
LONGEST_MS = 5_000
LONG_LIFE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Restarts:
    """The delay of the next restart, derived from the lengths of the last runs."""

    wait_ms: int = 0
    count: int = 0

    def after(self, lived_ms: int) -> Restarts:
        """The state after a run of `lived_ms`. Its `wait_ms` is the delay of the next start."""
        if self.count == 0 or lived_ms >= LONG_LIFE_MS:
            return replace(self, wait_ms=0, count=self.count + 1)
        return replace(self, wait_ms=min(max(SECOND_MS, self.wait_ms * 2), LONGEST_MS), count=self.count + 1)
