"""The services one by one, as on machines of their own, on what a cluster shares: a real MySQL server, a real S3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from support import golden, mariadb, minio
from support.compare import shown, tenant_differences
from support.mariadb import MariaDb
from support.platform import COMMAND
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


def command(up: Services, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`tistream …` as an operator would type it."""
    line = [str(COMMAND), *arguments, "--url", up.url]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def listed(up: Services, what: str) -> list[list[str]]:
    """The lines of `node list` or `task list`, without the head; none while nobody can say."""
    shown = command(up, what, "list")
    return [line.split() for line in shown.stdout.splitlines()[1:]] if not shown.returncode else []


def is_refused(up: Services, asked: Sequence[str], reason: str) -> bool:
    """For that reason; for another one only while a task is on its way to another sorter, as loads have it."""
    answer = command(up, *asked)
    assert answer.returncode, (asked, answer.stdout)
    return reason in answer.stderr


def tasks(up: Services, tenant: TenantKey) -> list[list[str]]:
    """Those of a tenant."""
    return [line for line in listed(up, "task") if str(tenant) in line]


def changes(consumer: Consumer, loaded: golden.GoldenSet) -> list[dict[str, Any]]:
    """All of them. Without resolved events: how many there are is how far the platform was when it was asked."""
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    return [event for event in events if event["type"] != "resolved"]


@pytest.fixture(scope="module")
def recorded(up: Services, bucket: str) -> golden.GoldenSet:
    """It has been pushed."""
    loaded = golden.load("everything")
    push(bucket, [loaded.schema_snap])
    up.create_for(loaded)
    eventually(lambda: shared_evenly(up))  # while nothing comes, each has the same to do
    push(bucket, list(loaded.files))
    return loaded


def test_services_on_a_shared_database_and_bucket_serve_what_tidb_wrote(
    up: Services, recorded: golden.GoldenSet
) -> None:
    for api in ("api", "api-2"):
        consumer = Consumer(up.url_of(api), recorded.tenant)
        events = consumer.pull(until_ts=recorded.end_ts, start_ts=recorded.snapshot_ts, limit=100_000)
        problems = tenant_differences(recorded, events)
        assert not problems, shown(problems)
    eventually(lambda: all_alive(up))


def test_an_operator_sees_who_does_what_and_changes_it(up: Services, recorded: golden.GoldenSet) -> None:
    consumer = Consumer(up.url, recorded.tenant)
    before = changes(consumer, recorded)
    assert json.loads(command(up, "owner").stdout)["node_id"].startswith("meta-")
    eventually(lambda: len(listed(up, "node")) == sum(NODES.values()) - NODES["meta"])
    nodes = {line[0]: line[1:3] for line in listed(up, "node")}
    assert nodes["sorter-2"] == ["sorter", "alive"]
    one, next_one, third = (line[0] for line in tasks(up, recorded.tenant)[:3])
    refused = {
        ("task", "split", "999"): "no task 999",
        ("task", "split", one, "--key", "xyz"): "hex",
        ("task", "split", next_one, "--key", "00"): "does not cut",
        ("task", "merge", one, third): "no neighbours",
        ("task", "move", one, "api-1"): "no sorter that is alive",
        ("node", "drain", "nobody"): "no node nobody",
        ("node", "drain", "api-1"): "only sorters and dispatchers",
    }
    for asked, reason in refused.items():
        eventually(lambda asked=asked, reason=reason: is_refused(up, asked, reason))
    eventually(lambda: not command(up, "task", "split", one, "--key", "01").returncode)
    eventually(lambda: [line[4] for line in tasks(up, recorded.tenant)] == ["running"] * 5)
    assert changes(consumer, recorded) == before
    assert not command(up, "node", "drain", "sorter-2").returncode
    eventually(lambda: {line[6] for line in listed(up, "task")} == {"sorter-1"})
    assert not command(up, "node", "drain", "sorter-2", "--undo").returncode
    eventually(lambda: {line[6] for line in listed(up, "task")} == {"sorter-1", "sorter-2"})


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
