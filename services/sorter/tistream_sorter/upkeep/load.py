"""Measures the recent load of a task in bytes per second, and finds the key that divides it into halves. Pure. One
thread writes. Other threads may read at any time, because values are replaced and never changed in place."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tistream.model.span import KeySpan
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.upkeep.key_scale import KeyLoad, halving

MEAN_MS = 30_000  # time constant of the mean: bytes of that age count a third
RECENT_MAX = 256  # row groups whose key bounds are kept for the split key
SPLIT_EVERY_MS = 5_000  # minimum interval between computations of the split key


@dataclass(frozen=True, slots=True)
class _Recent:
    at_ms: int
    low: bytes
    high: bytes
    weight: int


class LoadMeter:
    """The load of one task. All times are monotonic milliseconds."""

    def __init__(self, span: KeySpan) -> None:
        self._span = span
        self._sum: tuple[float, int] = 0.0, 0  # decayed bytes, and the time of the last decay
        self._recent: tuple[_Recent, ...] = ()
        self._split: tuple[tuple[_Recent, ...], int, bytes] = (), 0, b""  # last input, time and result

    def add(self, groups: Iterable[RowGroupRef], now_ms: int) -> None:
        """Count row groups whose rows were read and committed at `now_ms`, by their stored bytes."""
        found = list(groups)
        if not found:
            return
        self._sum = self._faded(now_ms) + sum(group.length for group in found), now_ms
        known = [
            _Recent(now_ms, max(group.key_min, self._span.start), self._below_end(group.key_max), group.length)
            for group in found
            if group.key_min is not None and group.key_max is not None
        ]
        self._recent = (*self._recent, *known)[-RECENT_MAX:]

    def per_second(self, now_ms: int) -> float:
        """The load in bytes per second: an exponentially weighted mean, which decays while no file arrives. `now_ms`:
        monotonic."""
        return self._faded(now_ms) * 1_000 / MEAN_MS

    def split_key(self, now_ms: int) -> bytes:
        """A key strictly inside the span that divides the recent load into about halves; empty if no such key is
        known."""
        recent = self._recent
        thought_of, thought_ms, key = self._split
        if recent is not thought_of and (not thought_of or now_ms - thought_ms >= SPLIT_EVERY_MS):
            loads = [KeyLoad(one.low, one.high, self._weight(one, now_ms)) for one in recent]
            key = halving(self._span, loads) or b""
            self._split = recent, now_ms, key
        return key

    def _below_end(self, key: bytes) -> bytes:
        return min(key, self._span.end) if self._span.end else key

    def _faded(self, now_ms: int) -> float:
        total, at_ms = self._sum
        return total * math.exp((at_ms - now_ms) / MEAN_MS)

    @staticmethod
    def _weight(one: _Recent, now_ms: int) -> int:
        return max(1, int(one.weight * math.exp((one.at_ms - now_ms) / MEAN_MS)))
