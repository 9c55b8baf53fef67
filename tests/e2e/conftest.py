"""The platforms that several files share: one for each set of options. What needs options of its own starts its own.

One process runs all tests that share a platform (tests/support/one_worker.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import platform
from support.platform import Platform


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up` with four ranges a tenant. Nobody stops or kills it."""
    with platform.running(tmp_path_factory.mktemp("up"), ranges=4) as started:
        yield started


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up` with sixteen ranges a tenant; its processes are killed and stopped. Each test leaves it running."""
    with platform.running(tmp_path_factory.mktemp("mortal"), ranges=16, killed=True) as started:
        yield started


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up --auth`."""
    with platform.running(tmp_path_factory.mktemp("guarded"), options=("--auth",)) as started:
        yield started
