"""Waiting for a condition. Only a broken product meets the deadline: no test depends on the speed of the machine.

The speed of the product is measured in benchmarks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 300.0
PAUSE_S = (
    0.02  # between two checks, at first: what takes long is asked less often, for each question takes processor time
)
PAUSE_MAX_S = 0.3
WAITED_SHARE = 0.05  # of what was waited already


def eventually(check: Callable[[], object], *, pause_s: float = PAUSE_S) -> float:
    """Wait until `check` returns something true; returns how many seconds that took. Fails with its last answer."""
    began, pause = time.monotonic(), threading.Event()
    while not (answer := check()):
        waited_s = time.monotonic() - began
        assert waited_s < PATIENCE_S, f"still {answer!r} after {PATIENCE_S:.0f} s"
        # no time.sleep, which unit tests may not call: what they wait for is another thread
        pause.wait(max(pause_s, longer_pause_s(waited_s)))
    return time.monotonic() - began


def awaited(check: Callable[[], T], *, pause_s: float = PAUSE_S) -> T:
    """Wait until `check` returns something true, and return it: a second call could return something else."""
    answers: list[T] = []

    def asked() -> T:
        answers[:] = [check()]
        return answers[0]

    eventually(asked, pause_s=pause_s)
    return answers[0]


def ends(ended: Callable[[], object], progress: Callable[[], object]) -> None:
    """Wait until `ended` returns something true, however long that takes: fails if `progress` returns the same for
    PATIENCE_S."""

    def goes_on() -> bool:
        return bool(ended()) or progress() != before

    while not ended():
        before = progress()
        eventually(goes_on)


def longer_pause_s(waited_s: float) -> float:
    """How long to wait after so many seconds before the next question."""
    return min(PAUSE_MAX_S, waited_s * WAITED_SHARE)


def in_time(run: Callable[[float], T], enough: Callable[[T], object], seconds: float = 1.0) -> T:
    """What `run` returns that is given so many seconds; four times as many, again and again, until it was enough."""
    while True:
        found = run(seconds)
        if enough(found):
            return found
        seconds *= 4
        assert seconds < PATIENCE_S, found
