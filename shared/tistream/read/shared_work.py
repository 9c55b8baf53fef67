"""Computes a result once for several pulls that need it at the same time or shortly after each other. Consumers that
follow a tenant read the same window as soon as it is committed, and pulls that begin at the same position read the same
rows."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from tistream.concurrency import Event, new_event, new_lock

T = TypeVar("T")

_PART_MAX = 4  # an entry may have at most 1/4 of the capacity, because it would evict all small ones


@dataclass(frozen=True, slots=True)
class Made:
    """A computed result. `value` is valid for every caller with the same key. `size` is its approximate size in bytes;
    None: it is not shared. `until_ms` is the time, in monotonic ms, until which it may be cached; None: no limit."""

    value: Any
    size: int | None
    until_ms: int | None = None


@dataclass(slots=True)
class _Making:
    done: Event
    made: Made | None = None


class SharedWork:
    """An LRU cache of results, bounded by their bytes. Thread-safe. The function `over` returns whether the time
    `until_ms` of a result has passed."""

    def __init__(self, bytes_max: int, over: Callable[[int | None], bool]) -> None:
        self._bytes_max, self._over = bytes_max, over
        self._lock = new_lock()
        self._held: OrderedDict[Hashable, Made] = OrderedDict()
        self._making: dict[Hashable, _Making] = {}
        self._ending: deque[Hashable] = deque()  # keys of entries with an expiry
        self._bytes = 0
        self.hits = 0

    def get(self, key: Hashable, make: Callable[[], Made]) -> Any:
        """The cached result for `key`. If it is not cached, this waits for another thread that is computing it, or
        calls `make`. Raises the errors of `make`."""
        with self._lock:
            self._drop_what_is_over()
            if (found := self._held.get(key)) is not None and not self._over(found.until_ms):
                self._held.move_to_end(key)
                self.hits += 1
                return found.value
            others = self._making.get(key)
            if others is None:
                mine = self._making[key] = _Making(new_event())
        if others is not None:
            others.done.wait()
            theirs = others.made
            if theirs is not None and theirs.size is not None and not self._over(theirs.until_ms):
                with self._lock:
                    self.hits += 1
                return theirs.value
            return make().value  # the other thread failed, did not share its result, or took too long
        try:
            made = mine.made = make()
        finally:
            with self._lock:
                del self._making[key]
                self._keep(key, mine.made)
            mine.done.set()
        return made.value

    def _drop_what_is_over(self) -> None:
        """Drop the results whose time has passed. Results expire about in the order in which they were added."""
        while self._ending and ((made := self._held.get(self._ending[0])) is None or self._over(made.until_ms)):
            self._drop(self._ending.popleft())

    def _drop(self, key: Hashable) -> None:
        made = self._held.pop(key, None)
        self._bytes -= 0 if made is None else made.size or 0

    def _keep(self, key: Hashable, made: Made | None) -> None:
        if made is None or made.size is None or made.size * _PART_MAX > self._bytes_max or self._over(made.until_ms):
            return
        self._drop(key)
        self._held[key] = made
        self._bytes += made.size
        if made.until_ms is not None:
            self._ending.append(key)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._held)))
