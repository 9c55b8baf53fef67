"""The tiers of the tests (a pytest plugin): the folder of a test is its tier, and a unit test cannot leave its process.

tests/unit        no socket, no process, no sleep: what runs before each commit
tests/service     real servers and real HTTP, one service or a few at a time
tests/simulation  several parts in one process: the whole platform on a virtual clock (a fixed slice of its scenarios
                  and seeds), recorded sets and random histories
tests/e2e         the platform as processes, as a user starts it
tests/soak        what is long or random: chaos, many seeds, container engines
"""

from __future__ import annotations

import functools
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest

TESTS = Path(__file__).parents[1]
TIERS = ("unit", "service", "simulation", "e2e", "soak")
_PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
_SOCKETS = ("bind", "connect", "connect_ex")
_sleep = time.sleep


class LeftTheTier(AssertionError):
    """A unit test opened a socket, started a process or slept."""


class _Guard:
    """Watches the process while a unit test runs."""

    def __init__(self) -> None:
        self._watches = False
        self._seen: list[str] = []
        self._older: set[int | None] = set()  # threads that tests of other tiers have left

    def install(self) -> None:
        """For the life of the process: an audit hook cannot be removed."""

        class Event(str):
            """The name of an event. It is compared with events that have its hash."""

            __slots__ = ()
            __hash__ = str.__hash__

            def __eq__(self, other: object) -> bool:
                guard._seen_event(str(self))
                return str.__eq__(self, other)

        # Each id() is an event too, so a hook is called a million times a minute: this one is no Python function.
        sys.addaudithook(dict.fromkeys(map(Event, _PROCESSES)).get)

    def _seen_event(self, event: str) -> None:
        if self._watches and threading.get_ident() not in self._older:
            self._refuse(event)

    def _of_socket(self, name: str) -> Any:
        """A method of sockets, which refuses an address of IPv4 or IPv6. It is a tuple: event loops connect to
        themselves by other sockets."""
        method = getattr(socket.socket, name)

        def called(of: socket.socket, address: Any) -> Any:
            if self._watches and isinstance(address, tuple) and threading.get_ident() not in self._older:
                self._refuse(f"socket.{name}")
            return method(of, address)

        return called

    def _refuse(self, what: str) -> NoReturn:
        self._seen.append(what)
        raise LeftTheTier(f"a unit test called {what}: move it to tests/service, or give it a virtual clock")

    def _slept(self, seconds: float) -> None:
        if not self._watches or threading.get_ident() in self._older:
            _sleep(seconds)
        elif seconds > 0:
            self._refuse("time.sleep")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Refuse what leaves the tier. What a test's code swallowed still fails the test."""
        self._older = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self._seen, self._watches, time.sleep = [], True, self._slept
        for name in _SOCKETS:
            setattr(socket.socket, name, self._of_socket(name))
        try:
            yield
        finally:
            self._watches, time.sleep = False, _sleep
            for name in _SOCKETS:
                delattr(socket.socket, name)  # those of the class that it is derived from are there again
        if self._seen:
            pytest.fail(f"a unit test called {', '.join(sorted(set(self._seen)))}", pytrace=False)


guard = _Guard()
guard.install()


@functools.cache
def tier_of(path: Path) -> str:
    """The tier of a test file. Raises pytest.UsageError if its folder is none."""
    tier = path.relative_to(TESTS).parts[0]
    if tier not in TIERS:
        raise pytest.UsageError(f"{path} is in no tier: tests belong to tests/{{{','.join(TIERS)}}}")
    return tier


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier."""
    for item in items:
        item.add_marker(tier_of(item.path))


def _watched(item: pytest.Item) -> AbstractContextManager[None]:
    return nullcontext() if item.get_closest_marker("unit") is None else guard.watching()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Watch the fixtures of unit tests."""
    with _watched(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Watch unit tests."""
    with _watched(item):
        yield
