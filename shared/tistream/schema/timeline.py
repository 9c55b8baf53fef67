"""A value over time: each change is valid from its ts until the next change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Timeline(Generic[T]):
    """The changes of one value, ordered by ts. Before the first change the value is `first`. Look-ups are O(log
    changes)."""

    __slots__ = ("_first", "_ts", "_values")

    def __init__(self, first: T) -> None:
        self._first = first
        self._ts: list[int] = []
        self._values: list[T] = []

    @property
    def last(self) -> T:
        """The newest value."""
        return self._values[-1] if self._values else self._first

    def set(self, ts: int, value: T) -> None:
        """Set the value from `ts` on. `ts` must not be below the newest change. An equal value adds no change."""
        if self._ts and self._ts[-1] == ts:
            self._ts.pop()
            self._values.pop()
        assert not self._ts or ts > self._ts[-1], f"{ts} is not above {self._ts[-1]}"
        if value != self.last:
            self._ts.append(ts)
            self._values.append(value)

    def at(self, ts: int) -> T:
        """The value at `ts`. A change at exactly `ts` counts."""
        return self._value(bisect_right(self._ts, ts))

    def before(self, ts: int) -> T:
        """The value just before `ts`. A change at exactly `ts` does not count."""
        return self._value(bisect_left(self._ts, ts))

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int, T]]:
        """Split the window `low < t <= high` into intervals in which `before(t)` is constant. Yields (from exclusive,
        to inclusive, value)."""
        at = bisect_right(self._ts, low)
        while low < high:
            to = min(self._ts[at], high) if at < len(self._ts) else high
            yield low, to, self._value(at)
            low, at = to, at + 1

    def changes(self) -> Iterator[tuple[int, T]]:
        """Every change as (ts, value), oldest first."""
        yield from zip(self._ts, self._values, strict=True)

    def forget(self, ts: int) -> bool:
        """Drop the changes that are not needed for any ts at or above `ts`. Returns whether no change is left; then the
        value is always `first`."""
        keep = bisect_right(self._ts, ts) - 1
        if keep >= 0 and self._values[keep] == self._first:
            keep += 1
        if keep > 0:
            del self._ts[:keep], self._values[:keep]
        return not self._ts

    def _value(self, end: int) -> T:
        return self._values[end - 1] if end else self._first
