"""The platforms that several files share: one for each set of options. What needs options of its own starts its own.

Tests that share a platform are run by one process (`--dist loadgroup`), in the order of their files' names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import platform
from support.platform import Platform


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file that names no group is one of its own."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up` with four ranges a tenant. Nobody stops or kills it. Group `four-ranges`."""
    with platform.running(tmp_path_factory.mktemp("up"), ranges=4) as started:
        yield started


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up` with sixteen ranges a tenant, whose processes are killed and stopped; each test leaves it running.
    Group `mortal`."""
    with platform.running(tmp_path_factory.mktemp("mortal"), ranges=16, killed=True) as started:
        yield started


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up --auth`. Group `guarded`."""
    with platform.running(tmp_path_factory.mktemp("guarded"), options=("--auth",)) as started:
        yield started
