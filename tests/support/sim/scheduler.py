"""Everything that runs, one at a time, on a virtual clock: what comes next is decided by the seed alone.

A fiber is a thread of a simulated process. It runs until it waits (for time, a lock, an answer) and is resumed by the
scheduler. A process can be killed, which raises Killed in each of its fibers wherever it waits, and paused, which
keeps its fibers from being resumed while time goes on: both as `kill -9` and SIGSTOP do.
"""

from __future__ import annotations

import heapq
import random
import traceback
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

US_PER_MS = 1_000


class Killed(BaseException):
    """The process was killed. Nothing catches it, as nothing survives SIGKILL."""


class Stuck(Exception):
    """Nothing will ever happen any more, and somebody waits for it."""


class Process:
    """One incarnation of a process: started once, killed once."""

    def __init__(self, name: str, skew_ms: int = 0) -> None:
        self.name = name
        self.skew_ms = skew_ms
        self.alive = True
        self.paused = False
        self.fibers: set[Fiber] = set()
        self.frozen: list[Callable[[], None]] = []  # what would have happened while it was paused

    def __repr__(self) -> str:
        return self.name


class Fiber:
    """A thread of a process."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, body: Callable[[], None]) -> None:
        self.process, self.name = process, name
        self.done = False
        self.waiting = 0  # which of its waits it is in: what was meant for an earlier one comes too late
        self.finished: list[Fiber] = []  # who waits for its end
        self._scheduler, self._body = scheduler, body
        self.greenlet = greenlet(self._run, parent=scheduler.hub)

    def _run(self, *_: Any) -> None:
        try:
            self._body()
        except Killed:
            self.done = True
        except BaseException:
            self._scheduler.failures.append(f"{self.process.name}/{self.name}: {traceback.format_exc()}")
        self.done = True
        self.process.fibers.discard(self)
        for waiter in self.finished:
            self._scheduler.wake(waiter)

    def is_alive(self) -> bool:
        return not self.done

    def join(self, timeout: float | None = None) -> None:
        if not self.done:
            waiter = self._scheduler.fiber()
            self.finished.append(waiter)
            self._scheduler.park(None if timeout is None else int(timeout * 1e6))


class Scheduler:
    """Events in the order of their virtual times; at one time, in the order that the seed gives them."""

    def __init__(self, seed: int, begin_ms: int) -> None:
        self.rng = random.Random(seed)
        self.now_us = begin_ms * US_PER_MS
        self.failures: list[str] = []
        self.switches = 0
        self.hub = getcurrent()
        self._events: list[tuple[int, float, int, Callable[[], None]]] = []
        self._number = 0
        self._fibers: dict[greenlet, Fiber] = {}

    @property
    def now_ms(self) -> int:
        return self.now_us // US_PER_MS

    # -- what happens -------------------------------------------------------------------------------------------------

    def after(self, delay_us: int, happen: Callable[[], None]) -> None:
        """Let something happen, in the scheduler's own context: it must not wait."""
        self._number += 1
        heapq.heappush(self._events, (self.now_us + max(0, delay_us), self.rng.random(), self._number, happen))

    def run(self, until: Callable[[], bool], limit_ms: int) -> bool:
        """Let things happen until `until()`, which is asked after each, or for `limit_ms`; whether it came true."""
        assert getcurrent() is self.hub
        deadline_us = self.now_us + limit_ms * US_PER_MS
        while not until():
            if not self._events:
                raise Stuck("no event is left")
            if self._events[0][0] > deadline_us:
                self.now_us = deadline_us
                return until()
            at_us, _, _, happen = heapq.heappop(self._events)
            self.now_us = max(self.now_us, at_us)
            happen()
        return True

    # -- fibers -------------------------------------------------------------------------------------------------------

    def start(self, process: Process, name: str, body: Callable[[], None]) -> Fiber:
        """A new thread of a process."""
        fiber = Fiber(self, process, name, body)
        if not process.alive:
            fiber.done = True
            return fiber
        process.fibers.add(fiber)
        self._fibers[fiber.greenlet] = fiber
        self.after(0, lambda: self._resume(fiber, 0))
        return fiber

    def fiber(self) -> Fiber:
        """The one that runs now."""
        return self._fibers[getcurrent()]

    def running(self) -> Fiber | None:
        """The one that runs now; None in the scheduler's own context, or in a thread of some library."""
        return self._fibers.get(getcurrent())

    def park(self, timeout_us: int | None) -> bool:
        """Wait to be woken, at most for so long; whether it was woken. Raises Killed."""
        fiber = self.fiber()
        if not fiber.process.alive:
            raise Killed
        fiber.waiting += 1
        turn = fiber.waiting
        if timeout_us is not None:
            self.after(timeout_us, lambda: self._resume(fiber, turn, woken=False))
        woken: bool = self.hub.switch()
        if not fiber.process.alive:
            raise Killed
        return woken

    def sleep(self, delay_us: int) -> None:
        """Let time pass. Whatever wakes the fiber meanwhile was meant for a wait that is over."""
        until_us = self.now_us + max(0, delay_us)
        self.park(max(0, delay_us))
        while self.now_us < until_us:
            self.park(until_us - self.now_us)

    def wake(self, fiber: Fiber) -> None:
        """Resume a fiber that waits; one that has been woken already goes on once."""
        turn = fiber.waiting
        self.after(0, lambda: self._resume(fiber, turn))

    def _resume(self, fiber: Fiber, turn: int, *, woken: bool = True) -> None:
        process = fiber.process
        if fiber.done or not process.alive or fiber.waiting != turn:
            return
        if process.paused:
            process.frozen.append(lambda: self._resume(fiber, turn, woken=woken))
            return
        self.switches += 1
        self._switch(fiber, woken)

    def _switch(self, fiber: Fiber, woken: bool) -> None:
        fiber.greenlet.switch(woken)
        if fiber.done:
            self._fibers.pop(fiber.greenlet, None)

    # -- processes ----------------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """SIGKILL. In the scheduler's own context."""
        assert getcurrent() is self.hub
        process.alive = False
        for fiber in sorted(process.fibers, key=lambda fiber: fiber.name):
            fiber.waiting += 1
            if fiber.greenlet:
                fiber.greenlet.throw(Killed)
            fiber.done = True
            self._fibers.pop(fiber.greenlet, None)
        process.fibers.clear()

    def end(self) -> None:
        """Kill whatever is left."""
        for process in {fiber.process for fiber in self._fibers.values()}:
            self.kill(process)
        self._events.clear()

    def pause(self, process: Process) -> None:
        """SIGSTOP."""
        process.paused = True

    def proceed(self, process: Process) -> None:
        """SIGCONT."""
        process.paused = False
        frozen, process.frozen = process.frozen, []
        for happen in frozen:
            self.after(self.rng.randrange(1_000), happen)
