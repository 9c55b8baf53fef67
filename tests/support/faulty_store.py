"""An object store whose writes go wrong as they do over a network: seeded by a plan, not by chance."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum

from tistream.errors import CommitConflict, CommitStateUnknown, Unavailable
from tistream.storage.object_store import Body, ObjectInfo, ObjectStore


class Fault(Enum):
    """The way in which one conditional write fails."""

    NONE = "none"
    REFUSED = "refused"  # did not happen, and the writer knows
    LOST = "lost"  # did not happen, and the writer does not know
    UNANSWERED = "unanswered"  # happened, and the writer does not know
    DELAYED = "delayed"  # happens when `deliver` is called, if it still can; the writer does not know


class FaultyObjectStore:
    """Implements ObjectStore around another one; conditional writes meet the faults planned, in order."""

    def __init__(self, inner: ObjectStore, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self.plan = deque(plan)
        self.delayed: list[tuple[str, bytes, str | None]] = []

    def deliver(self) -> None:
        """Execute every delayed write."""
        delayed, self.delayed = self.delayed, []
        for key, body, version in delayed:
            try:
                self._write(key, body, version)
            except CommitConflict:
                continue  # its writer is not listening any more

    def put_new(self, key: str, body: bytes) -> None:
        self._conditional(key, body, None)

    def put_if(self, key: str, body: bytes, version: str) -> None:
        self._conditional(key, body, version)

    def _conditional(self, key: str, body: bytes, version: str | None) -> None:
        fault = self.plan.popleft() if self.plan else Fault.NONE
        if fault is Fault.REFUSED:
            raise Unavailable("refused")
        if fault is Fault.DELAYED:
            self.delayed.append((key, body, version))
        if fault in (Fault.NONE, Fault.UNANSWERED):
            self._write(key, body, version)
        if fault is not Fault.NONE:
            raise CommitStateUnknown(key, "the answer was lost")

    def _write(self, key: str, body: bytes, version: str | None) -> None:
        if version is None:
            self.inner.put_new(key, body)
        else:
            self.inner.put_if(key, body, version)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length)

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self.inner.get_tail(key, length)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def put(self, key: str, body: Body) -> None:
        self.inner.put(key, body)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list_after(prefix, after, delimiter)

    def delete(self, key: str) -> None:
        self.inner.delete(key)
