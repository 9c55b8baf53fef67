"""Cutting keys so that each piece has an equal share of the work. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np

from tistream.model.span import KeySpan

NEAR = 0.1  # of a share: so far from an even cut a better one is looked for
UNEVEN = 1.3  # times its share: more than that in one shard is worth reading row groups twice


@dataclass(frozen=True, slots=True)
class Load:
    """Work whose keys lie between two bounds, both inclusive."""

    low: bytes
    high: bytes
    weight: int


def between(span: KeySpan, loads: Sequence[Load], count: int) -> list[bytes]:
    """At most `count` - 1 cuts at the lowest keys of loads; none if no such cuts are even enough.

    Of the keys near an even cut the one that the least work crosses: what is cut through is read twice.
    """
    candidates = _candidates(span, loads)
    total = sum(load.weight for load in loads)
    bounds: list[bytes] = []
    for number in range(1, count):
        target = total * number / count
        left = [one for one in candidates if not bounds or one.key > bounds[-1]]
        near = [one for one in left if abs(one.begun - target) <= NEAR * total / count]
        if near:
            bounds.append(min(near, key=lambda one: (one.begun - one.ended, abs(one.begun - target), one.key)).key)
        elif beyond := next((one for one in left if one.begun >= target), None):
            bounds.append(beyond.key)
    scale = _KeyScale(loads)
    shares = np.diff([0.0, *(scale.below(bound) for bound in bounds), float(total)])
    return bounds if shares.max() <= UNEVEN * total / count else []


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A key to cut at: the work of loads that begin below it, and of those that end below it."""

    key: bytes
    begun: int
    ended: int


def _candidates(span: KeySpan, loads: Sequence[Load]) -> list[_Candidate]:
    """The lowest keys of loads, in order."""
    by_low, by_high = sorted(loads, key=lambda load: load.low), sorted(loads, key=lambda load: load.high)
    lows, highs = [load.low for load in by_low], [load.high for load in by_high]
    begun, ended = ([0, *accumulate(load.weight for load in some)] for some in (by_low, by_high))
    keys = [key for key, _ in groupby(lows) if key in span and key > span.start]
    return [_Candidate(key, begun[bisect_left(lows, key)], ended[bisect_left(highs, key)]) for key in keys]


def evenly(span: KeySpan, loads: Sequence[Load], count: int) -> list[bytes]:
    """Cuts that leave equal work between them, found by bisection; the keys of a load are taken to lie evenly."""
    total, scale = sum(load.weight for load in loads), _KeyScale(loads)
    bounds: list[bytes] = []
    for number in range(1, count):
        low, high = 0, (1 << 64) - 1
        while low < high:
            middle = (low + high) // 2
            if scale.below(scale.key(middle)) < total * number / count:
                low = middle + 1
            else:
                high = middle
        key = scale.key(low)
        if key in span and key > (bounds[-1] if bounds else span.start):
            bounds.append(key)
    return bounds


class _KeyScale:
    """Keys as numbers, the eight bytes behind what all of them begin with, taken to lie evenly between the bounds of
    each load."""

    def __init__(self, loads: Sequence[Load]) -> None:
        lows, highs = [load.low for load in loads], [load.high for load in loads]
        self._prefix = _common_prefix(min(lows), max(highs))
        self._low = np.array([self._number(key) for key in lows])
        self._width = np.array([self._number(key) for key in highs]) - self._low
        self._weights = np.array([load.weight for load in loads], float)

    def _number(self, key: bytes) -> float:
        """Where a key lies; one from outside lies at the end."""
        head, tail = key[: len(self._prefix)], key[len(self._prefix) :][:8]
        if head != self._prefix:
            return 0.0 if head < self._prefix else float(1 << 64)
        return float(int.from_bytes(tail.ljust(8, b"\x00"), "big"))

    def key(self, number: int) -> bytes:
        """The key at a number below 2 ** 64."""
        return self._prefix + number.to_bytes(8, "big")

    def below(self, key: bytes) -> float:
        """Work below a key."""
        ahead = self._number(key) - self._low
        share = np.where(self._width > 0, ahead / np.maximum(self._width, 1.0), ahead > 0)
        return float((self._weights * share.clip(0.0, 1.0)).sum())


def _common_prefix(left: bytes, right: bytes) -> bytes:
    length = next(
        (at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    return left[:length]
