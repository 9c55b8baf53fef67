"""The platforms that several files share: one for each set of options. What needs options of its own starts its own.

One process runs all tests that share a platform (tests/support/one_worker.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import platform
from support.one_worker import DAMAGES, FOUR_RANGES, GUARDED, MORTAL, group_of
from support.platform import Platform
from support.pulled import Pulled, pulled_whole

SETTINGS = {"TISTREAM_META__ERASE_QUIET_MS": "15000"}
_shared: dict[str, Platform] = {}  # by group


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """A shared platform that was stopped is started again, where tests do not run group after group."""
    shared = _shared.get(group_of(item.nodeid))
    if shared is not None and not shared.alive():
        shared.start()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last test of a group its platform is stopped: one that is idle still takes a part of a core."""
    yield
    group = group_of(item.nodeid)
    shared = _shared.get(group)
    if shared is not None and shared.alive() and (nextitem is None or group_of(nextitem.nodeid) != group):
        shared.stop()


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up` with four ranges a tenant. Nobody stops or kills it. Two groups use it, each in its own process if
    there are enough: together they would take longer than all others."""
    with platform.running(tmp_path_factory.mktemp("up"), ranges=4, environ=SETTINGS) as started:
        _shared[FOUR_RANGES] = _shared[DAMAGES] = started
        yield started


@pytest.fixture(scope="session")
def whole(up: Platform) -> Pulled:
    """The set `everything` on `up`, for tests that change nothing of it."""
    return pulled_whole(up, "everything", "whole")


@pytest.fixture(scope="session")
def whole_large(up: Platform) -> Pulled:
    """The set `large` on `up`, likewise."""
    return pulled_whole(up, "large", "whole-large")


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up` with sixteen ranges a tenant; its processes are killed and stopped."""
    with platform.running(tmp_path_factory.mktemp("mortal"), ranges=16, killed=True) as started:
        _shared[MORTAL] = started
        yield started


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up --auth`."""
    with platform.running(tmp_path_factory.mktemp("guarded"), options=("--auth",)) as started:
        _shared[GUARDED] = started
        yield started
