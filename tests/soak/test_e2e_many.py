"""Several meta servers, sorters and API servers under one `tistream up`: any API server gives the same answers, and a
service that hangs is replaced by another of its kind."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support import golden, plain_http, platform
from support.compare import shown, tenant_differences
from support.platform import Platform
from support.pull import Consumer
from support.sim.audit import of_directory
from support.waiting import PATIENCE_S, eventually
from tistream.model.ids import TenantKey

OPTIONS = ("--metas", "3", "--sorters", "2", "--apis", "2")
LEASE = {"TISTREAM_META__LEASE_MS": "30000"}  # longer than an owner that is not stopped may wait for a processor
SET = golden.load("large")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("up")
    with platform.running(folder, ranges=4, killed=True, options=OPTIONS, environ=LEASE) as started:
        yield started


def asked(up: Platform, name: str, path: str) -> httpx.Response:
    """What a process says, asked as its peers do."""
    url = f"http://127.0.0.1:{up.ports()[name]}{path}"
    return httpx.get(url, headers=up.service_headers(), timeout=PATIENCE_S, trust_env=False)


def owner_rev(up: Platform, name: str) -> int:
    """The election in which a meta server became the owner; 0 if it never did."""
    text = asked(up, name, "/metrics").text
    return int(float(re.search(r"^tistream_meta_owner_rev (\S+)$", text, re.MULTILINE)[1]))  # type: ignore[index]


def owner(up: Platform) -> str:
    return max((name for name in up.ports() if name.startswith("meta")), key=lambda name: owner_rev(up, name))


def pid_of(up: Platform, name: str) -> int:
    """Of a service's main process."""
    (process,) = up.named(name, up.alive())
    return process.pid


def held(up: Platform) -> list[int]:
    """How many tasks each sorter holds."""
    return [len(asked(up, name, "/v1/tasks").json()["tasks"]) for name in ("sorter", "sorter-2")]


def changes(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without resolved events: how many there are is how far the platform was when it was asked."""
    return [event for event in events if event["type"] != "resolved"]


@pytest.fixture(scope="module")
def first(up: Platform) -> Consumer:
    """Of the recorded tenant, at the first API server."""
    golden.put(up.objects, SET.schema_snap)
    consumer = up.create_for(SET)
    eventually(lambda: len(set(held(up))) == 1 and all(held(up)))  # while nothing comes, each has the same to do
    golden.push(SET.files, up.objects)
    return consumer


def test_any_api_server_gives_every_event_and_takes_any_cursor(up: Platform, first: Consumer) -> None:
    second = Consumer(f"http://127.0.0.1:{up.ports()['api-2']}", SET.tenant, up.patient_http())
    whole = first.pull(until_ts=SET.end_ts, start_ts=SET.snapshot_ts, limit=100_000)
    problems = tenant_differences(SET, whole)
    assert not problems, shown(problems)
    got, query = [], {"start_ts": SET.snapshot_ts}
    for turn in range(1_000_000):
        page = (first, second)[turn % 2].page(**query, limit=997)
        got += page.events
        if page.end["type"] == "resolved" and int(page.end["resolved_ts"]) >= SET.end_ts:
            break
        query = {"cursor": page.end["cursor"]}
    assert changes(got) == changes(whole)


def test_an_owner_that_hangs_is_replaced_and_follows_when_it_wakes(up: Platform) -> None:
    old = owner(up)
    rev = owner_rev(up, old)
    others = [name for name in up.ports() if name.startswith("meta") and name != old]
    pid = pid_of(up, old)
    os.kill(pid, signal.SIGSTOP)
    try:
        took = eventually(lambda: any(owner_rev(up, name) > rev for name in others))
        print(f"another owner after {took:.1f} s")
        eventually(lambda: created(up, "after-the-owner"))
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: '"after-the-owner"' in asked(up, old, "/v1/clusters/9/tenants").text)
    assert owner_rev(up, old) == rev, "it was not elected again"


def created(up: Platform, name: str) -> bool:
    """Whether the tenant is there. 200: an earlier request was taken, though its answer was lost."""
    url = f"{up.url}/v1/clusters/9/tenants"
    return httpx.post(url, json={"tenant_id": name}, timeout=PATIENCE_S, trust_env=False).status_code in (200, 201)


def holds_what_is_its_own(up: Platform, name: str) -> bool:
    """Whether a sorter holds only tasks that the meta servers have given it, under their epochs. False while one of
    them does not answer."""
    try:
        answers = [asked(up, name, "/v1/tasks"), plain_http.get(f"{up.url}/v1/tasks")]
    except httpx.TransportError:
        return False
    if any(answer.status_code != httpx.codes.OK for answer in answers):
        return False
    held, given = (answer.json()["tasks"] for answer in answers)
    own = {(one["task_id"], one["task_epoch"]) for one in given if one["sorter_node"] == name}
    return {(one["task_id"], one["task_epoch"]) for one in held} <= own


def test_the_tasks_of_a_sorter_that_hangs_go_on_elsewhere(up: Platform) -> None:
    loaded = golden.load_as("large", "9", "sorter-hangs")
    golden.put(up.objects, loaded.schema_snap)
    consumer = up.create_tenant(TenantKey("9", "sorter-hangs"))
    eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.snapshot_ts)
    pid = pid_of(up, "sorter-2")
    os.kill(pid, signal.SIGSTOP)
    try:
        golden.push(loaded.files, up.objects)
        took = eventually(lambda: int(consumer.status()["resolved_ts"]) >= loaded.end_ts)
        print(f"level after {took:.1f} s")
    finally:
        os.kill(pid, signal.SIGCONT)
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    eventually(lambda: holds_what_is_its_own(up, "sorter-2"))
    again = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    assert changes(again) == changes(events), "what it did once it woke is nobody's"
    audit = of_directory(up.objects)
    assert not audit.problems, "\n".join(audit.problems[:5])
    assert audit.manifests > 4, "a tenant of four tasks, and what became of them"
