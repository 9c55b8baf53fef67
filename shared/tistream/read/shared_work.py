"""Computes a result once for several pulls that need it at the same time or shortly after each other. Consumers that
follow a tenant read the same window as soon as it is committed, and pulls that begin at the same position read the same
rows."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from tistream.concurrency import Event, new_event, new_lock
from tistream.read.source_contract import Alive, always

T = TypeVar("T")

LOOK_MS = 250  # how often a caller that waits for another thread's result checks its reader
_PART_MAX = 4  # an entry may have at most 1/4 of the capacity, because it would evict all small ones


@dataclass(frozen=True, slots=True)
class SharedResult:
    """A computed result. `value` is valid for every caller with the same key. `size` is its approximate size in bytes;
    None: it is not shared. `until_ms` is the time, in monotonic ms, until which it may be cached; None: no limit."""

    value: Any
    size: int | None
    until_ms: int | None = None


@dataclass(slots=True)
class _Making:
    done: Event
    made: SharedResult | None = None
    waiting: int = 0  # callers that wait for it, beside the one that computes it


class SharedWork:
    """An LRU cache of results, bounded by their bytes. Thread-safe. The function `over` returns whether the time
    `until_ms` of a result has passed."""

    def __init__(self, bytes_max: int, over: Callable[[int | None], bool]) -> None:
        self._bytes_max, self._over = bytes_max, over
        self._lock = new_lock()
        self._held: OrderedDict[Hashable, SharedResult] = OrderedDict()
        self._making: dict[Hashable, _Making] = {}
        self._ending: deque[Hashable] = deque()  # keys of entries with an expiry
        self._bytes = 0
        self.hits = 0

    def get(self, key: Hashable, make: Callable[[Alive], SharedResult], alive: Alive = always) -> Any:
        """The cached result for `key`. If it is not cached, wait for another thread that is computing it, or compute it
        with `make`, also if the other thread fails or its result cannot be shared. `alive` raises if the caller's own
        reader has left. `make` is called with a check that raises once all readers that wait for the result have left.
        Raises the errors of `make` and `alive`."""
        with self._lock:
            self._drop_what_is_over()
            if (found := self._held.get(key)) is not None and not self._over(found.until_ms):
                self._held.move_to_end(key)
                self.hits += 1
                return found.value
            others = self._making.get(key)
            if others is None:
                mine = self._making[key] = _Making(new_event())
            else:
                others.waiting += 1
        if others is not None:
            theirs = self._theirs(others, alive)
            if theirs is not None and theirs.size is not None and not self._over(theirs.until_ms):
                with self._lock:
                    self.hits += 1
                return theirs.value
            return make(alive).value  # the other thread failed, did not share its result, or took too long
        try:
            made = mine.made = make(lambda: None if mine.waiting else alive())
        finally:
            with self._lock:
                del self._making[key]
                self._keep(key, mine.made)
            mine.done.set()
        return made.value

    def _theirs(self, others: _Making, alive: Alive) -> SharedResult | None:
        """Wait until the thread that makes `others` has finished, and return its result. Returns None if that thread
        failed. Calls `alive` while it waits, and raises its errors."""
        try:
            while not others.done.wait(LOOK_MS / 1000):
                alive()
        finally:
            with self._lock:
                others.waiting -= 1
        return others.made

    def _drop_what_is_over(self) -> None:
        """Drop the results whose time has passed. Results expire about in the order in which they were added."""
        while self._ending and ((made := self._held.get(self._ending[0])) is None or self._over(made.until_ms)):
            self._drop(self._ending.popleft())

    def _drop(self, key: Hashable) -> None:
        made = self._held.pop(key, None)
        self._bytes -= 0 if made is None else made.size or 0

    def _keep(self, key: Hashable, made: SharedResult | None) -> None:
        if made is None or made.size is None or made.size * _PART_MAX > self._bytes_max or self._over(made.until_ms):
            return
        self._drop(key)
        self._held[key] = made
        self._bytes += made.size
        if made.until_ms is not None:
            self._ending.append(key)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._held)))
