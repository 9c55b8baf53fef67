"""How often a read waits for the object store: on a virtual clock, where an answer takes a second and all else no time.
What is asked for at the same time is waited for once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from support.sim.scheduler import Process, Scheduler
from support.sim.threads import SimThreads
from tistream import concurrency
from tistream.storage.backends.memory import MemoryObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Waits(Generic[T]):
    """What a read found, its GET requests, and how many of them it waited for one after another."""

    found: T
    gets: int
    depth: int


class Distant:
    """An object store whose GETs take a second each."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner, self.gets = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: str) -> bytes:
        return self._after_a_second(lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._after_a_second(lambda: self._inner.get_range(key, start, length))

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._after_a_second(lambda: self._inner.get_tail(key, length))

    def _after_a_second(self, get: Callable[[], T]) -> T:
        self.gets += 1
        concurrency.sleep(1)
        return get()


def waits(objects: MemoryObjectStore, *reads: Callable[[Distant], T]) -> list[Waits[T]]:
    """Make reads one after the other, and count what each waits for. They get the same store."""
    scheduler, found = Scheduler(1, 0), list[Waits[T]]()
    with concurrency.installed(SimThreads(scheduler)):
        store = Distant(objects)

        def body() -> None:
            for read in reads:
                gets, begun_us = store.gets, scheduler.now_us
                result = read(store)
                found.append(Waits(result, store.gets - gets, (scheduler.now_us - begun_us) // 1_000_000))

        fiber = scheduler.start(Process("reader"), "read", body)
        scheduler.run(lambda: fiber.done, 1_000_000)
        scheduler.end()
    assert not scheduler.failures, scheduler.failures[0]
    return found
