"""Cutting keys so that each piece has an equal share of the work. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tistream.model.span import KeySpan

UNEVEN = 1.3  # times its share: more than that in one shard is worth reading row groups twice


@dataclass(frozen=True, slots=True)
class Load:
    """Work whose keys lie between two bounds, both inclusive."""

    low: bytes
    high: bytes
    weight: int


def between(span: KeySpan, loads: Sequence[Load], count: int) -> list[bytes]:
    """At most `count` - 1 cuts at the lowest keys of loads; none if no such cuts are even enough."""
    total = sum(load.weight for load in loads)
    bounds: list[bytes] = []
    seen = 0
    for load in sorted(loads, key=lambda load: (load.low, load.weight)):
        if len(bounds) == count - 1:
            break
        above = load.low > (bounds[-1] if bounds else span.start)
        if seen >= total * (len(bounds) + 1) / count and load.low in span and above:
            bounds.append(load.low)
        seen += load.weight
    scale = _KeyScale(loads)
    shares = np.diff([0.0, *(scale.below(bound) for bound in bounds), float(total)])
    return bounds if shares.max() <= UNEVEN * total / count else []


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
