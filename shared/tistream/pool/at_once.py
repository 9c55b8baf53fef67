"""Runs calls that wait for the object store at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from tistream.concurrency import new_executor

S = TypeVar("S")
T = TypeVar("T")

LOT = 8  # calls that one read makes at the same time
THREADS = 16  # calls that all reads of an AtOnce make at the same time


def lots(items: Sequence[S]) -> Iterator[Sequence[S]]:
    """Cut `items` into sequences of at most LOT items, in order."""
    return (items[start : start + LOT] for start in range(0, len(items), LOT))


class AtOnce:
    """Makes calls in threads that all reads of a process share. Thread-safe. `name` is that of the threads. A caller
    waits only for its own calls: those that no thread has begun are made in its own thread."""

    def __init__(self, name: str) -> None:
        self._pool = new_executor(name, THREADS)

    def map(self, call: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
        """Yield `call(item)` for each of `items`, in order. At most LOT calls run at the same time, and the next LOT
        calls begin when the caller has taken those results. An error is raised in the place of the result. A call for
        a single item is made in the caller's thread."""
        for lot in lots(items):
            yield from map(call, lot) if len(lot) == 1 else self._made(call, lot)

    def close(self) -> None:
        """End the threads. Calls that have not begun, and later ones, are made in the threads of their callers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _made(self, call: Callable[[S], T], lot: Sequence[S]) -> Iterator[T]:
        begun = [self._begun(call, item) for item in lot]
        try:
            for at in range(len(lot)):
                for later in range(at, len(lot)):
                    if begun[later].cancel():
                        begun[later] = _made_here(call, lot[later])
                    if begun[at].done():
                        break
                yield begun[at].result()
        finally:
            for future in begun:
                future.cancel()

    def _begun(self, call: Callable[[S], T], item: S) -> Future[T]:
        try:
            return self._pool.submit(call, item)
        except RuntimeError:  # the pool is shut down, or the system has no thread for it
            never = Future[T]()
            never.cancel()
            return never


def _made_here(call: Callable[[S], T], item: S) -> Future[T]:
    made = Future[T]()
    try:
        made.set_result(call(item))
    except Exception as error:
        made.set_exception(error)
    return made
