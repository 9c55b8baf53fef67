"""Puts that happen beside the caller's own work: who has much to write need not wait for the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from tistream.storage.object_store import Body, ObjectStore


@dataclass(slots=True)
class WriteBehind:
    """Puts into `inner` by threads of `executor`; for one caller. Bodies of `bytes_max` in all are under way, or one.

    A put that failed raises at a later put, or at `settle`: nothing may be told of any of them before that.
    """

    inner: ObjectStore
    executor: Executor
    bytes_max: int
    _under_way: deque[tuple[int, Future[None]]] = field(default_factory=deque)

    def put(self, key: str, body: Body) -> None:
        """Begin to put; the body must not change any more. Raises what an earlier put has raised."""
        while self._under_way and sum(size for size, _ in self._under_way) + len(body) > self.bytes_max:
            self._under_way.popleft()[1].result()
        self._under_way.append((len(body), self.executor.submit(self.inner.put, key, body)))

    def settle(self) -> None:
        """Wait until all is there. Raises what a put has raised; the others have ended too."""
        for failed in list(self._failures()):
            raise failed

    def _failures(self) -> Iterator[BaseException]:
        while self._under_way:
            error = self._under_way.popleft()[1].exception()
            if error is not None:
                yield error
