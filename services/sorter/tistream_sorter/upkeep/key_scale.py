"""Cuts a span of keys so that the parts have equal work. Pure.

A key is represented by an integer: its first KEY_BYTES bytes. Floats are too coarse: with an `m` key in the span, two
rows of a table would have the same value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from tistream.model.span import KeySpan

NEAR = 0.1  # in shares: distance from an even cut within which a better cut is searched
# In shares: if a shard has more than this, cuts through row groups are better, although these are then read twice.
UNEVEN = 1.3
HALF_MIN = 0.25  # as a fraction of the work: minimum on each side of a cut into halves
KEY_BYTES = 40  # enough for the table, the index and some columns of an index key
FINE_BYTES = 8  # length of a cut between two keys, after their common prefix
FRACTION_BITS = 8 * KEY_BYTES + 32  # of the work per key, as a fixed-point number, so that sums are exact


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """An amount of work, in bytes, that belongs to the keys between two bounds, both inclusive."""

    low: bytes
    high: bytes
    weight: int


def between(span: KeySpan, loads: Sequence[KeyLoad], count: int) -> list[bytes]:
    """Choose at most `count` - 1 cuts, each at the lowest key of a load. Returns an empty list if such cuts are too
    uneven. Among the keys near an even cut, the key whose cut divides the least work is chosen, because loads with keys
    on both sides are read twice."""
    scale = _KeyScale(loads)
    candidates = _candidates(span, loads, scale)
    total = sum(load.weight for load in loads)
    bounds: list[bytes] = []
    for number in range(1, count):
        target = total * number / count
        left = [one for one in candidates if not bounds or one.key > bounds[-1]]
        near = [one for one in left if abs(one.below - target) <= NEAR * total / count]
        if near:
            bounds.append(min(near, key=lambda one: (one.crossed, abs(one.below - target), one.key)).key)
        elif beyond := next((one for one in left if one.below >= target), None):
            bounds.append(beyond.key)
    below = [0, *(scale.below(bound) for bound in bounds), total]
    return bounds if max(b - a for a, b in pairwise(below)) <= UNEVEN * total / count else []


def evenly(span: KeySpan, loads: Sequence[KeyLoad], count: int) -> list[bytes]:
    """Choose at most `count` - 1 cuts with equal work between them, on the assumption that the keys of a load are
    spread evenly between its bounds."""
    scale = _KeyScale(loads)
    bounds: list[bytes] = []
    for number in range(1, count):
        key = scale.key_at(number, count)
        if key in span and key > (bounds[-1] if bounds else span.start):
            bounds.append(key)
    return bounds


def halving(span: KeySpan, loads: Sequence[KeyLoad]) -> bytes | None:
    """A key strictly inside the span with about half of the work on each side; None if no such key exists, for example
    if one key has all the work."""
    total = sum(load.weight for load in loads)
    if not total:
        return None
    scale = _KeyScale(loads)
    keys = [*between(span, loads, 2), *evenly(span, loads, 2)]
    return next((key for key in keys if HALF_MIN * total <= scale.below(key) <= (1 - HALF_MIN) * total), None)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A key at which the span may be cut. below: the work below the key. crossed: the work of the loads that the cut
    divides."""

    key: bytes
    below: int
    crossed: int


def _candidates(span: KeySpan, loads: Sequence[KeyLoad], scale: _KeyScale) -> list[_Candidate]:
    """The keys at which the span may be cut, which are the lowest keys of loads, in order."""
    by_low, by_high = sorted(loads, key=lambda load: load.low), sorted(loads, key=lambda load: load.high)
    lows, highs = [load.low for load in by_low], [load.high for load in by_high]
    begun, ended = ([0, *accumulate(load.weight for load in some)] for some in (by_low, by_high))
    keys = [key for key, _ in groupby(lows) if key in span and key > span.start]
    return [
        _Candidate(key, scale.below(key), begun[bisect_left(lows, key)] - ended[bisect_left(highs, key)])
        for key in keys
    ]


class _KeyScale:
    """The work below a key, as a function of the key. It is linear between neighbouring bounds of loads."""

    def __init__(self, loads: Sequence[KeyLoad]) -> None:
        steeper: dict[int, int] = {}
        for load in loads:
            low, end = _number(load.low), _number(load.high) + 1
            density = (load.weight << FRACTION_BITS) // (end - low)
            steeper[low] = steeper.get(low, 0) + density
            steeper[end] = steeper.get(end, 0) - density
        self._bounds = sorted(steeper)
        self._slopes = list(accumulate(steeper[bound] for bound in self._bounds))
        steps = zip(self._slopes, self._bounds, self._bounds[1:], strict=False)
        self._below = [0, *accumulate(slope * (end - low) for slope, low, end in steps)]

    def below(self, key: bytes) -> int:
        """The work below a key."""
        number = _number(key)
        at = bisect_left(self._bounds, number)
        if not at:
            return 0
        more = self._slopes[at - 1] * (number - self._bounds[at - 1])
        return (self._below[at - 1] + more) >> FRACTION_BITS

    def key_at(self, number: int, count: int) -> bytes:
        """A key with about `number` / `count` of the work below it. It ends FINE_BYTES bytes after the common
        prefix of its two neighbouring bounds. If the wanted work is 0, it is the lowest bound, with KEY_BYTES
        bytes."""
        target = self._below[-1] * number // count
        at = bisect_left(self._below, target)
        if not at:
            return _key(self._bounds[0], KEY_BYTES)
        low, end = self._bounds[at - 1], self._bounds[at]
        found = low + (target - self._below[at - 1]) // max(self._slopes[at - 1], 1)
        left, right = _key(low, KEY_BYTES), _key(end, KEY_BYTES)
        alike = next(n for n in range(KEY_BYTES) if left[n] != right[n])
        return _key(min(found, end), alike + FINE_BYTES)


def _number(key: bytes) -> int:
    return int.from_bytes(key[:KEY_BYTES].ljust(KEY_BYTES, b"\x00"), "big")


def _key(number: int, length: int) -> bytes:
    return min(number, (1 << 8 * KEY_BYTES) - 1).to_bytes(KEY_BYTES, "big")[:length]
