"""How much a test tries: a fixed part of its cases in `make test`, all of them, and at random, in `make soak`.

`make soak` sets TISTREAM_EFFORT=full.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import Phase

FULL = os.environ.get("TISTREAM_EFFORT") == "full"
SHARE = 5  # one example of five
FEWEST = 10

NAMED = tuple(Phase) if FULL else (Phase.explicit,)
"""The phases of a test whose examples are long: in the soak all, else the examples that it names alone."""

Case = TypeVar("Case")


def examples(full: int, few: int | None = None) -> int:
    """How many examples of hypothesis to try: `full` in the soak, else `few`, or a fifth of `full`."""
    if FULL:
        return full
    return min(full, max(FEWEST, full // SHARE)) if few is None else few


def cases(few: Sequence[Case], rest: Sequence[Case]) -> list[Case]:
    """The cases of a parametrized test: in the soak those of the `rest` too."""
    return [*few, *rest] if FULL else [*few]


def seeds(few: int, full: int) -> range:
    """Seeds of a test with a generator of its own, from 0: `few`, in the soak `full`."""
    return range(full if FULL else few)
