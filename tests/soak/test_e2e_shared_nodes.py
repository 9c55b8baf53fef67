"""Two of each service, as on machines of their own, on what a cluster shares: a real MySQL server, a real S3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from support import golden, plain_http
from support.command import patient_command as run
from support.compare import shown, tenant_differences
from support.pull import Consumer
from support.services import Services
from support.shared_services import NODES, Shared, shared_services
from support.waiting import awaited, eventually
from tistream.model.ids import TenantKey


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_services(tmp_path_factory.mktemp("shared"), NODES) as started:
        yield started


@pytest.fixture(scope="module")
def up(shared: Shared) -> Services:
    return shared.up


def shared_evenly(shared: Shared) -> bool:
    """Whether each sorter has as many tasks."""
    shares = [node["tasks"] for node in shared.nodes() if node["role"] == "sorter"]
    return len(shares) == NODES["sorter"] and len(set(shares)) == 1 and all(shares)


def all_alive(shared: Shared) -> bool:
    """Whether every node is there."""
    nodes = shared.nodes()
    return len(nodes) == sum(NODES.values()) - NODES["meta"] and all(node["state"] == "alive" for node in nodes)


def owner(up: Services) -> str:
    answer = plain_http.get(f"{up.url}/v1/owner")
    return str(answer.json()["node_id"]) if answer.status_code == httpx.codes.OK else ""


def command(up: Services, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`tistream …` as an operator would type it."""
    return run(*arguments, "--url", up.url)


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


def known_tasks(up: Services, tenant: TenantKey | None = None) -> list[dict[str, Any]]:
    """As the command lists them. None while nobody can say."""
    answer = plain_http.get(f"{up.url}/v1/tasks")
    known = answer.json()["tasks"] if answer.status_code == httpx.codes.OK else []
    return [one for one in known if tenant in (None, TenantKey(one["cluster_id"], one["tenant_id"]))]


def is_split(up: Services, tenant: TenantKey, task: str) -> bool:
    """Whether the first of four tasks is two, by this command or by one before it that was told to come again."""
    return not command(up, "task", "split", task, "--key", "01").returncode or len(known_tasks(up, tenant)) > 4


def run_by(up: Services) -> set[str]:
    """The sorters that have tasks."""
    return {one["sorter_node"] for one in known_tasks(up)}


def changes(consumer: Consumer, loaded: golden.GoldenSet) -> list[dict[str, Any]]:
    """All of them. Without resolved events: how many there are is how far the platform was when it was asked."""
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    return [event for event in events if event["type"] != "resolved"]


@pytest.fixture(scope="module")
def recorded(shared: Shared, up: Services) -> golden.GoldenSet:
    """It has been pushed."""
    loaded = golden.load("everything")
    shared.push([loaded.schema_snap])
    up.create_for(loaded)
    eventually(lambda: shared_evenly(shared))  # while nothing comes, each has the same to do
    shared.push(list(loaded.files))
    return loaded


def test_services_on_a_shared_database_and_bucket_serve_what_tidb_wrote(
    shared: Shared, up: Services, recorded: golden.GoldenSet
) -> None:
    for api in ("api", "api-2"):
        consumer = Consumer(up.url_of(api), recorded.tenant)
        events = consumer.pull(until_ts=recorded.end_ts, start_ts=recorded.snapshot_ts, limit=100_000)
        problems = tenant_differences(recorded, events)
        assert not problems, shown(problems)
    eventually(lambda: all_alive(shared))


def test_an_operator_sees_who_does_what_and_changes_it(up: Services, recorded: golden.GoldenSet) -> None:
    consumer = Consumer(up.url, recorded.tenant)
    before = changes(consumer, recorded)
    assert json.loads(command(up, "owner").stdout)["node_id"].startswith("meta-")
    eventually(lambda: len(listed(up, "node")) == sum(NODES.values()) - NODES["meta"])
    eventually(lambda: ["sorter-2", "sorter", "alive"] in [line[:3] for line in listed(up, "node")])
    one, next_one, third = (line[0] for line in awaited(lambda: tasks(up, recorded.tenant))[:3])
    refused = {
        ("task", "split", "999"): "no task 999",
        ("task", "split", one, "--key", "xyz"): "hex",
        ("task", "split", next_one, "--key", "00"): "does not lie inside the span of",
        ("task", "merge", one, third): "are not neighbours",
        ("task", "move", one, "api-1"): "not a sorter that is alive",
        ("node", "drain", "nobody"): "no node nobody",
        ("node", "drain", "api-1"): "api-1 is of role api, and only",
    }
    for asked, reason in refused.items():
        eventually(lambda asked=asked, reason=reason: is_refused(up, asked, reason))
    eventually(lambda: is_split(up, recorded.tenant, one))
    eventually(lambda: [one["phase"] for one in known_tasks(up, recorded.tenant)] == ["running"] * 5)
    eventually(lambda: [line[4] for line in tasks(up, recorded.tenant)] == ["running"] * 5)
    assert changes(consumer, recorded) == before
    assert not command(up, "node", "drain", "sorter-2").returncode
    eventually(lambda: run_by(up) == {"sorter-1"})
    eventually(lambda: {line[6] for line in listed(up, "task")} == {"sorter-1"})
    assert not command(up, "node", "drain", "sorter-2", "--undo").returncode
    eventually(lambda: run_by(up) == {"sorter-1", "sorter-2"})


def test_an_owner_that_dies_for_good_is_replaced(up: Services) -> None:
    dead = awaited(lambda: owner(up))
    (process,) = up.named(dead, up.alive())
    os.kill(process.pid, signal.SIGKILL)
    took = eventually(lambda: owner(up) not in ("", dead))
    print(f"another owner after {took:.1f} s")
    up.start_one(dead.removesuffix("-1"))
