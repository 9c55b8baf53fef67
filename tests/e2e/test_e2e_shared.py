"""The services one by one, as on machines of their own, on what a cluster shares: a real MySQL server, a real S3."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support import golden, mariadb, minio
from support.compare import shown, tenant_differences
from support.mariadb import MariaDb
from support.pull import Consumer
from support.services import Services
from support.waiting import PATIENCE_S, eventually
from tistream.model.ids import TenantKey
from tistream.storage.open import open_objects

NODES = {"meta": 3, "schema": 1, "dispatcher": 2, "sorter": 2, "api": 2}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The object store's URL."""
    with minio.running(tmp_path_factory.mktemp("minio")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environ.items():
            patch.setenv(name, value)
        yield server.url(server.new_bucket(), "some/prefix")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, database: MariaDb, bucket: str) -> Iterator[Services]:
    data_dir = tmp_path_factory.mktemp("services")
    services = Services(data_dir, ranges=4, nodes=NODES, database_url=database.url, objects_url=bucket)
    try:
        yield services.start()
        services.wait_ready()  # one that was started again may not have come to where it hears SIGTERM
        services.stop()
    except BaseException:
        print(services.report())
        raise
    finally:
        services.close()


def push(bucket: str, deliveries: list[golden.Delivery]) -> None:
    objects = open_objects(bucket)
    for delivery in deliveries:
        objects.put(delivery.key, delivery.data)


def nodes(up: Services) -> list[dict[str, Any]]:
    """Who is registered; nobody while nobody can say."""
    answer = httpx.get(f"{up.url}/v1/nodes", trust_env=False, timeout=PATIENCE_S)
    found: list[dict[str, Any]] = answer.json()["nodes"] if answer.status_code == httpx.codes.OK else []
    return found


def shared_evenly(up: Services) -> bool:
    """Whether each sorter has as many tasks."""
    shares = [node["tasks"] for node in nodes(up) if node["role"] == "sorter"]
    return len(shares) == NODES["sorter"] and len(set(shares)) == 1 and all(shares)


def all_alive(up: Services) -> bool:
    """Whether every node is there."""
    found = nodes(up)
    return len(found) == sum(NODES.values()) - NODES["meta"] and all(node["state"] == "alive" for node in found)


def owner(up: Services) -> str:
    answer = httpx.get(f"{up.url}/v1/owner", trust_env=False, timeout=PATIENCE_S)
    return str(answer.json()["node_id"]) if answer.status_code == httpx.codes.OK else ""


def test_services_on_a_shared_database_and_bucket_serve_what_tidb_wrote(up: Services, bucket: str) -> None:
    loaded = golden.load("everything")
    push(bucket, [loaded.schema_snap])
    up.create_for(loaded)
    eventually(lambda: shared_evenly(up))  # while nothing comes, each has the same to do
    push(bucket, list(loaded.files))
    for api in ("api", "api-2"):
        consumer = Consumer(up.url_of(api), loaded.tenant)
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
        problems = tenant_differences(loaded, events)
        assert not problems, shown(problems)
    eventually(lambda: all_alive(up))


def test_the_other_recorded_set_is_equal_there_too(up: Services, bucket: str) -> None:
    """Large transactions: rows that wait in their change files, segments that are named later."""
    loaded = golden.load_as("large", "9", "large")
    push(bucket, [loaded.schema_snap, *loaded.files])
    consumer = up.create_tenant(TenantKey("9", "large"))
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


def test_an_owner_that_dies_for_good_is_replaced(up: Services, bucket: str) -> None:
    eventually(lambda: owner(up))
    dead = owner(up)
    (process,) = up.named(dead, up.alive())
    os.kill(process.pid, signal.SIGKILL)
    took = eventually(lambda: owner(up) not in ("", dead))
    print(f"another owner after {took:.1f} s")
    up.start_one(dead.removesuffix("-1"))


def test_a_sorter_that_dies_for_good_is_replaced_by_the_other(up: Services, bucket: str) -> None:
    loaded = golden.load_as("large", "9", "sorter-dies")
    push(bucket, [loaded.schema_snap])
    consumer = up.create_tenant(TenantKey("9", "sorter-dies"))
    eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.snapshot_ts)
    (process,) = up.named("sorter-2", up.alive())
    os.kill(process.pid, signal.SIGKILL)
    push(bucket, list(loaded.files))
    took = eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.end_ts)
    print(f"level after {took:.1f} s")
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    up.start_one("sorter-2")


def test_the_database_is_restarted_and_nobody_loses_anything(up: Services, bucket: str, database: MariaDb) -> None:
    loaded = golden.load_as("large", "9", "database-away")
    half = len(loaded.files) // 2
    push(bucket, [loaded.schema_snap, *loaded.files[:half]])
    consumer = up.create_tenant(TenantKey("9", "database-away"))
    eventually(lambda: int(consumer.status()["resolved_ts"]) > loaded.snapshot_ts)
    database.stop()
    push(bucket, list(loaded.files[half:]))
    eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.end_ts)
    database.start()
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    up.create_tenant(TenantKey("9", "after-the-restart"))
