"""One platform for every test that can do with a tenant of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import platform
from support.platform import Platform


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """`tistream up` with four ranges a tenant."""
    with platform.running(tmp_path_factory.mktemp("up"), ranges=4) as started:
        yield started
