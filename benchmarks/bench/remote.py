"""A contender in a process of its own, so that its memory, its threads and its settings are its own too."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any


class RemoteError(Exception):
    """The contender failed; the text is its traceback."""


class Remote:
    """Calls what `factory(*args)` gives, there. `env` is set before anything is imported.

    `factory` is a function or class of a module. What a call gives must be picklable.
    """

    def __init__(self, factory: Callable[..., Callable[..., Any]], *args: Any, env: Mapping[str, str] | None = None):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        before = {name: os.environ.get(name) for name in env or {}}
        os.environ.update(env or {})  # a spawned process takes what is set now
        try:
            self._process = context.Process(target=_serve, args=(theirs, factory, args))
            self._process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        self._answer()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process.pid is not None
        return self._process.pid

    def __call__(self, *args: Any) -> Any:
        """One call, and what it gave. Raises RemoteError."""
        self._pipe.send(args)
        return self._answer()

    def _answer(self) -> Any:
        try:
            good, what = self._pipe.recv()
        except EOFError:
            raise RemoteError("the process has ended") from None
        if not good:
            raise RemoteError(what)
        return what

    def end(self) -> None:
        """End the process at once, in the middle of a call."""
        self._process.terminate()
        self._process.join()

    def close(self) -> None:
        """End the process."""
        if not self._process.is_alive():
            return
        self._pipe.send(None)
        self._process.join(20)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()


def _serve(pipe: Connection, factory: Callable[..., Callable[..., Any]], args: tuple[Any, ...]) -> None:
    try:
        called = factory(*args)
        pipe.send((True, None))
        while (given := pipe.recv()) is not None:
            try:
                pipe.send((True, called(*given)))
            except Exception:
                pipe.send((False, traceback.format_exc()))
        if close := getattr(called, "close", None):
            close()
    except Exception:
        pipe.send((False, traceback.format_exc()))
