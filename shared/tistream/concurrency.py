"""Threads and synchronization primitives. All concurrent code of the platform takes them from here, so that a
simulation can install its own: threads that run one at a time, in an order that a seed decides, on a virtual clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from types import TracebackType
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Lock(Protocol):
    """The interface of a lock: that of threading.Lock and threading.RLock."""

    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Condition(Lock, Protocol):
    """The interface of a condition variable: that of threading.Condition."""

    def wait(self, timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class Event(Protocol):
    """The interface of an event: that of threading.Event."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Thread(Protocol):
    """A daemon thread that has been started."""

    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...


class Primitives(Protocol):
    """The factory of all primitives. Times are in seconds."""

    def lock(self) -> Lock: ...
    def rlock(self) -> Lock: ...
    def condition(self, lock: Lock | None) -> Condition: ...
    def event(self) -> Event: ...
    def start(self, name: str, body: Callable[[], None]) -> Thread: ...
    def current(self) -> object: ...
    def executor(self, name: str, workers: int) -> Executor: ...
    def sleep(self, seconds: float) -> None: ...


class _Executor(ThreadPoolExecutor):
    """A thread pool in which each call runs with the cause id of the caller that submitted it (tistream.cause)."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        context = copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))


class SystemThreads:
    """The interpreter's own threads and primitives."""

    def lock(self) -> Lock:
        return threading.Lock()

    def rlock(self) -> Lock:
        return threading.RLock()

    def condition(self, lock: Lock | None) -> Condition:
        return threading.Condition(lock)  # type: ignore[arg-type]

    def event(self) -> Event:
        return threading.Event()

    def start(self, name: str, body: Callable[[], None]) -> Thread:
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread

    def current(self) -> object:
        return threading.current_thread()

    def executor(self, name: str, workers: int) -> Executor:
        return _Executor(workers, thread_name_prefix=name)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


_installed: Primitives = SystemThreads()


@contextmanager
def installed(primitives: Primitives) -> Iterator[None]:
    """Install `primitives` for a `with` block: the functions of this module create locks, events and threads with
    it."""
    global _installed  # noqa: PLW0603  # one scheduler per interpreter, as with asyncio's event loop policy
    before, _installed = _installed, primitives
    try:
        yield
    finally:
        _installed = before


def new_lock() -> Lock:
    """A lock that one thread holds at a time; not reentrant."""
    return _installed.lock()


def new_rlock() -> Lock:
    """A reentrant lock: the thread that holds it may acquire it again."""
    return _installed.rlock()


def new_condition(lock: Lock | None = None) -> Condition:
    """A condition variable on `lock`. Without `lock` it has a reentrant lock of its own."""
    return _installed.condition(lock)


def new_event() -> Event:
    """An event that is not set."""
    return _installed.event()


def start_thread(name: str, body: Callable[[], None]) -> Thread:
    """Run `body` in a new daemon thread, which does not keep the process alive."""
    return _installed.start(name, body)


def current_thread() -> object:
    """The current thread. It compares equal to the Thread that `start_thread` returned for it."""
    return _installed.current()


def new_executor(name: str, workers: int) -> Executor:
    """A thread pool that runs at most `workers` calls at the same time."""
    return _installed.executor(name, workers)


def sleep(seconds: float) -> None:
    """Pause the calling thread for `seconds`."""
    _installed.sleep(seconds)
