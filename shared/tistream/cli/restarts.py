"""When a child that ended is started again: at once after a long life, later and later after short ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

SECOND_MS = 200
LONGEST_MS = 5_000
LONG_LIFE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Restarts:
    """How long the next restart waits, given how the last lives went."""

    wait_ms: int = 0
    count: int = 0

    def after(self, lived_ms: int) -> Restarts:
        """The state after a life of `lived_ms`; its `wait_ms` is the pause before the next one."""
        if self.count == 0 or lived_ms >= LONG_LIFE_MS:
            return replace(self, wait_ms=0, count=self.count + 1)
        return replace(self, wait_ms=min(max(SECOND_MS, self.wait_ms * 2), LONGEST_MS), count=self.count + 1)
