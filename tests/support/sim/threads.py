"""tistream.concurrency's primitives on the scheduler. Taking a lock may let others go first: where a thread of the
real thing can be overtaken, one here sometimes is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from support.sim.scheduler import Fiber, Scheduler

OVERTAKEN = 0.05


class SimLock:
    def __init__(self, scheduler: Scheduler, *, reentrant: bool) -> None:
        self._scheduler, self._reentrant = scheduler, reentrant
        self.holder: object = None
        self.depth = 0
        self._waiters: deque[Fiber] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        me = self._scheduler.running() or self._scheduler
        if self._reentrant and self.holder is me:
            self.depth += 1
            return True
        if blocking and isinstance(me, Fiber) and self._scheduler.rng.random() < OVERTAKEN:
            self._scheduler.sleep(0)
        while self.holder is not None:
            if not blocking:
                return False
            assert isinstance(me, Fiber), "only a fiber can wait"
            assert self.holder is not me, "a lock that is not reentrant is taken again by its holder"
            self._waiters.append(me)
            self._scheduler.park(None)
        self.holder, self.depth = me, 1
        return True

    def release(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.holder = None
            if self._waiters:
                self._scheduler.wake(self._waiters.popleft())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimCondition:
    def __init__(self, scheduler: Scheduler, lock: SimLock) -> None:
        self._scheduler, self._lock = scheduler, lock
        self._waiters: list[Fiber] = []

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        me = self._scheduler.fiber()
        depth, self._lock.depth = self._lock.depth, 1
        self._waiters.append(me)
        self._lock.release()
        woken = self._scheduler.park(None if timeout is None else int(timeout * 1e6))
        if me in self._waiters:
            self._waiters.remove(me)
        self._lock.acquire()
        self._lock.depth = depth
        return woken

    def notify_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._scheduler.wake(waiter)


class SimEvent:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters: list[Fiber] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._scheduler.wake(waiter)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            me = self._scheduler.fiber()
            self._waiters.append(me)
            self._scheduler.park(None if timeout is None else int(timeout * 1e6))
            if me in self._waiters:
                self._waiters.remove(me)
        return self._set


class SimFuture(Future[Any]):
    """A call of an executor. Who waits for its result waits for its fiber."""

    fiber: Fiber

    def result(self, timeout: float | None = None) -> Any:
        self.fiber.join(timeout)
        return super().result(0)


class SimExecutor(Executor):
    """Each call is a fiber of its own."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler, self._name = scheduler, name

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = SimFuture()

        def body() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        future.fiber = self._scheduler.start(self._scheduler.fiber().process, self._name, body)
        return future

    def map(
        self, call: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        begun = [self.submit(call, *args) for args in zip(*iterables, strict=False)]
        return (future.result() for future in begun)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        return None


class SimThreads:
    """Implements tistream.concurrency.Primitives."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def lock(self) -> SimLock:
        return SimLock(self._scheduler, reentrant=False)

    def rlock(self) -> SimLock:
        return SimLock(self._scheduler, reentrant=True)

    def condition(self, lock: Any) -> SimCondition:
        return SimCondition(self._scheduler, lock or SimLock(self._scheduler, reentrant=True))

    def event(self) -> SimEvent:
        return SimEvent(self._scheduler)

    def start(self, name: str, body: Callable[[], None]) -> Fiber:
        return self._scheduler.start(self._scheduler.fiber().process, name, body)

    def current(self) -> object:
        return self._scheduler.running()

    def executor(self, name: str, workers: int) -> SimExecutor:
        return SimExecutor(self._scheduler, name)

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(int(seconds * 1e6))
