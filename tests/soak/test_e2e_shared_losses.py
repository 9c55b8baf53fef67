"""What several services share is lost for a while, and a sorter for good: everything is there, and right."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from support import golden
from support.compare import shown, tenant_differences
from support.services import Services
from support.shared_services import NODES, Shared, shared_services
from support.waiting import eventually
from tistream.model.ids import TenantKey


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_services(tmp_path_factory.mktemp("shared"), NODES) as started:
        yield started


@pytest.fixture(scope="module")
def up(shared: Shared) -> Services:
    return shared.up


def test_the_other_recorded_set_is_equal_there_too(shared: Shared, up: Services) -> None:
    """Large transactions: rows that wait in their change files, segments that are named later."""
    loaded = golden.load_as("large", "9", "large")
    shared.push([loaded.schema_snap, *loaded.files])
    consumer = up.create_tenant(TenantKey("9", "large"))
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


def test_a_sorter_that_dies_for_good_is_replaced_by_the_other(shared: Shared, up: Services) -> None:
    loaded = golden.load_as("large", "9", "sorter-dies")
    shared.push([loaded.schema_snap])
    consumer = up.create_tenant(TenantKey("9", "sorter-dies"))
    eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.snapshot_ts)
    (process,) = up.named("sorter-2", up.alive())
    os.kill(process.pid, signal.SIGKILL)
    shared.push(list(loaded.files))
    took = eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.end_ts)
    print(f"level after {took:.1f} s")
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    up.start_one("sorter-2")


def test_the_database_is_restarted_and_nobody_loses_anything(shared: Shared, up: Services) -> None:
    loaded = golden.load_as("large", "9", "database-away")
    half = len(loaded.files) // 2
    shared.push([loaded.schema_snap, *loaded.files[:half]])
    consumer = up.create_tenant(TenantKey("9", "database-away"))
    eventually(lambda: int(consumer.status()["resolved_ts"]) > loaded.snapshot_ts)
    shared.database.stop()
    shared.push(list(loaded.files[half:]))
    eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.end_ts)
    shared.database.start()
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    up.create_tenant(TenantKey("9", "after-the-restart"))
