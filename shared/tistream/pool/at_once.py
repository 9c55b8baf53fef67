"""Runs calls that wait for the object store at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """Makes calls in threads that all reads of a process share. Thread-safe. `name` is that of the threads."""

    def __init__(self, name: str) -> None:
        self._pool = new_executor(name, THREADS)

    def map(self, call: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
        """Yield `call(item)` for each of `items`, in order. At most LOT calls run at the same time, and the next LOT
        calls begin when the caller has taken those results. An error is raised in the place of the result. A call for
        a single item is made in the caller's thread."""
        for lot in lots(items):
            yield from map(call, lot) if len(lot) == 1 else self._pool.map(call, lot)
