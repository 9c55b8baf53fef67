"""Computes the pause before a feed that cannot write tries again (docs/changefeeds.md, "States"). Pure."""

from __future__ import annotations

from random import Random

FIRST_MS = 1_000
LONGEST_MS = 60_000
JITTER = 0.2


def pause_ms(failures: int, rng: Random) -> int:
    """The ms to wait after `failures` failures in a row (at least one). The pause doubles each time up to LONGEST_MS.
    It varies at random by up to 20 percent, so that feeds of one broken sink do not all return at once."""
    doubled = FIRST_MS << min(failures - 1, 10)
    return round(min(doubled, LONGEST_MS) * rng.uniform(1 - JITTER, 1 + JITTER))
