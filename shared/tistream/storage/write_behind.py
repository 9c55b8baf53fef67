"""Writes objects in background threads, so that a caller that writes many objects need not wait for each put."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from tistream.storage.object_store import Body, ObjectStore


@dataclass(slots=True)
class WriteBehind:
    """Puts objects into `inner` with the threads of `executor`, for one caller. `put` waits, so that the running puts
    have at most `bytes_max` bytes in total, unless a single body is larger.

    The error of a failed put is raised by a later put, or by `settle`. A put is certain only after `settle` has
    returned.
    """

    inner: ObjectStore
    executor: Executor
    bytes_max: int
    _under_way: deque[tuple[int, Future[None]]] = field(default_factory=deque)

    def put(self, key: str, body: Body) -> None:
        """Start to put a body in the background. The caller must not change the body any more. Waits for earlier puts
        while there is no room, and raises the error of a failed one; this body is then not put."""
        while self._under_way and sum(size for size, _ in self._under_way) + len(body) > self.bytes_max:
            self._under_way.popleft()[1].result()
        self._under_way.append((len(body), self.executor.submit(self.inner.put, key, body)))

    def settle(self) -> None:
        """Wait until all puts have ended. Raises the error of a put that failed."""
        for failed in list(self._failures()):
            raise failed

    def _failures(self) -> Iterator[BaseException]:
        while self._under_way:
            error = self._under_way.popleft()[1].exception()
            if error is not None:
                yield error
