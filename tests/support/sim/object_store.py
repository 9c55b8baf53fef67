"""An object store over a network, with S3's semantics and its faults: answers that never come, writes that happen
long after their writer gave up, requests that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TypeVar

from support.sim.scheduler import Process, Scheduler
from tistream.errors import CommitConflict, CommitStateUnknown, Unavailable
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import Body, ObjectInfo

T = TypeVar("T")
UNREACHABLE_US = 1_500_000


@dataclass
class StoreFaults:
    """The probabilities of faults, for each request."""

    refused: float = 0.0  # 503 SlowDown
    unanswered: float = 0.0  # of writes: done, or not done, or done later; the writer does not know which
    slow: float = 0.0
    slow_ms: int = 2_000


class SimObjectStore:
    """Implements ObjectStore for one process. `may_die` may end the process, at each request's way there and
    back; who is in `alone` reaches nothing."""

    def __init__(
        self,
        inner: MemoryObjectStore,
        scheduler: Scheduler,
        process: Process,
        faults: StoreFaults,
        may_die: Callable[[Process], None],
        alone: Set[str] = frozenset(),
    ) -> None:
        self._inner, self._scheduler, self._process, self._faults = inner, scheduler, process, faults
        self._may_die, self._alone = may_die, alone

    def _travel(self) -> None:
        """Half of a request's time; the process may die meanwhile."""
        scheduler, faults = self._scheduler, self._faults
        if scheduler.running() is None:
            return  # a thread of a library, which cannot wait here
        rng = scheduler.rng
        self._may_die(self._process)
        slow = rng.random() < faults.slow
        scheduler.sleep(rng.randrange(faults.slow_ms * 1_000) if slow else rng.randrange(300, 4_000))

    def _refuse(self, key: str) -> None:
        if self._process.name in self._alone and self._scheduler.running() is not None:
            self._scheduler.sleep(UNREACHABLE_US)
            raise Unavailable(f"{key}: connect timeout")
        if self._scheduler.running() is not None and self._scheduler.rng.random() < self._faults.refused:
            raise Unavailable(f"{key}: 503 SlowDown")

    def _read(self, key: str, call: Callable[[], T]) -> T:
        self._travel()
        self._refuse(key)
        try:
            return call()
        finally:
            self._travel()

    def get(self, key: str) -> bytes:
        return self._read(key, lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read(key, lambda: self._inner.get_range(key, start, length))

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._read(key, lambda: self._inner.get_tail(key, length))

    def head(self, key: str) -> ObjectInfo:
        return self._read(key, lambda: self._inner.head(key))

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        return iter(self._read(prefix, lambda: list(self._inner.list_after(prefix, after, delimiter))))

    def put(self, key: str, body: Body) -> None:
        self._repeatable(key, lambda: self._inner.put(key, body))

    def put_new(self, key: str, body: bytes) -> None:
        self._write(key, lambda: self._inner.put_new(key, body))

    def put_if(self, key: str, body: bytes, version: str) -> None:
        self._write(key, lambda: self._inner.put_if(key, body, version))

    def delete(self, key: str) -> None:
        self._repeatable(key, lambda: self._inner.delete(key))

    def _repeatable(self, key: str, call: Callable[[], None]) -> None:
        """A write that may be repeated, whose lost answer a store reports as Unavailable."""
        try:
            self._write(key, call)
        except CommitStateUnknown as error:
            raise Unavailable(str(error)) from error

    def _write(self, key: str, call: Callable[[], None]) -> None:
        self._travel()
        self._refuse(key)
        rng = self._scheduler.rng
        if rng.random() < self._faults.unanswered:
            what = rng.choice(("done", "not done", "later"))
            if what == "done":
                _quietly(call)
            elif what == "later":
                self._scheduler.after(rng.randrange(20_000_000), lambda: _quietly(call))
            self._travel()
            raise CommitStateUnknown(key)
        try:
            call()
        finally:
            self._travel()


def _quietly(call: Callable[[], None]) -> None:
    try:
        call()
    except CommitConflict:
        return  # its writer is not listening any more
