"""Pauses between attempts of a feed that cannot write (docs/changefeeds.md, "States"). Pure."""

from __future__ import annotations

from random import Random

FIRST_MS = 1_000
LONGEST_MS = 60_000
JITTER = 0.2


def pause_ms(failures: int, rng: Random) -> int:
    """Milliseconds before the next attempt after `failures` failures in a row (at least one): doubled each time up to
    LONGEST_MS, with a random deviation of up to 20 percent, so that feeds of one broken sink do not all return at
    once."""
    doubled = FIRST_MS << min(failures - 1, 10)
    return round(min(doubled, LONGEST_MS) * rng.uniform(1 - JITTER, 1 + JITTER))
