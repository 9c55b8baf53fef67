"""Which cores of this machine who may use: as containers and pods have their own share of a node's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cores:
    """`pipeline`: for what takes in and sorts, and what that stands on. `serving`: for what answers, and who asks."""

    pipeline: frozenset[int]
    serving: frozenset[int]


def shared() -> Cores:
    """Everybody has all."""
    every = frozenset(os.sched_getaffinity(0))
    return Cores(every, every)


def apart() -> Cores:
    """Half of them each. Raises ValueError where there is but one."""
    every = sorted(os.sched_getaffinity(0))
    if len(every) < 2:
        raise ValueError("one core cannot be shared out")
    half = (len(every) + 1) // 2
    return Cores(frozenset(every[:half]), frozenset(every[half:]))


@contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """What this thread does and starts meanwhile uses these alone; what it has started keeps to them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
