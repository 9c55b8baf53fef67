"""A loaded platform for the tests of each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import golden
from support.api_world import Platform, platform
from support.pull import Consumer
from tistream_client import Tenant, TiStream

EVERYTHING = golden.load("everything")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("world"), ranges=1) as one:
        yield one


@pytest.fixture(scope="module")
def loaded(up: Platform) -> Consumer:
    consumer = up.create(EVERYTHING)
    up.put(*EVERYTHING.deliveries)
    consumer.wait_for(EVERYTHING.end_ts)
    return consumer


@pytest.fixture(scope="module")
def acme(loaded: Consumer) -> Iterator[Tenant]:
    with TiStream(loaded.url) as client:
        yield client.tenant("7", "acme")
