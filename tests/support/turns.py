"""Functions that run at once as threads, one step at a time: a seed says which of them makes the next step."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import Body, ObjectInfo


class Died(BaseException):
    """The process of a function ends here."""


class _Actor:
    def __init__(self, body: Callable[[], Any], steps: int | None) -> None:
        self.body, self.steps = body, steps
        self.outcome: Any = None
        self.done = False
        self.go, self.stopped = threading.Event(), threading.Event()


class Turns:
    """A step of a function ends where it calls `pause`; a call from any other thread does nothing."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._actors: dict[int, _Actor] = {}

    def pause(self) -> None:
        actor = self._actors.get(threading.get_ident())
        if actor is None:
            return
        actor.stopped.set()
        actor.go.wait()
        actor.go.clear()
        if actor.steps is not None:
            actor.steps -= 1
            if actor.steps < 0:
                raise Died

    def run(self, *bodies: tuple[Callable[[], Any], int | None]) -> list[Any]:
        """Run functions at once, each until it ends, or dies after a number of steps. Returns what each has returned
        or raised."""
        actors = [_Actor(*body) for body in bodies]
        threads = [threading.Thread(target=self._live, args=(actor,), daemon=True) for actor in actors]
        for actor, thread in zip(actors, threads, strict=True):
            thread.start()
            actor.stopped.wait()
        while there := [actor for actor in actors if not actor.done]:
            actor = self._rng.choice(there)
            for _ in range(self._rng.choice([1, 1, 2, 5, 20])):
                if not actor.done:
                    actor.stopped.clear()
                    actor.go.set()
                    actor.stopped.wait()
        for thread in threads:
            thread.join()
        return [actor.outcome for actor in actors]

    def _live(self, actor: _Actor) -> None:
        self._actors[threading.get_ident()] = actor
        try:
            self.pause()
            actor.outcome = actor.body()
        except (Exception, Died) as error:
            actor.outcome = error
        finally:
            actor.done = True
            del self._actors[threading.get_ident()]
            actor.stopped.set()


class StoreInTurns(MemoryObjectStore):
    """Objects that functions use at once: each call is a step."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._turns.pause()
        return super().get_range(key, start, length)

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        self._turns.pause()
        return super().get_tail(key, length)

    def put(self, key: str, body: Body) -> None:
        self._turns.pause()
        super().put(key, body)

    def put_new(self, key: str, body: bytes) -> None:
        self._turns.pause()
        super().put_new(key, body)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        self._turns.pause()
        yield from super().list_after(prefix, after, delimiter)
