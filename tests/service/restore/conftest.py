"""The platform that tests of restores read. One process runs them (tests/support/one_worker.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import golden
from support.api_world import Platform, platform
from support.patient_calls import patient
from support.pull import Consumer


@pytest.fixture(scope="package")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Platform, Consumer]]:
    """A platform with the set `everything` as a tenant, which nothing changes."""
    loaded = golden.load("everything")
    with patient(), platform(tmp_path_factory.mktemp("world"), ranges=4) as up:
        consumer = up.create(loaded)
        up.put(*loaded.deliveries)
        consumer.wait_for(loaded.end_ts)
        yield up, consumer
