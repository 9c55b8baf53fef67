"""The follower on a real pool: golden schema changes over several tasks, restarts, rivals, damage."""

from __future__ import annotations

import functools
import itertools
import random

import orjson
import pytest

from support import golden
from support.committed_pool import CommittedTask, Row
from support.effort import seeds
from support.schema_records import name, table_info
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.pool.footers import FooterCache
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.meta_change import DDL_JOB_TABLE_ID, SCHEMA_SPANS
from tistream.schema.tidb.meta_key import encode_key
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream.wire.sorter import TaskStatus
from tistream_schema.durable_log import DurableLog
from tistream_schema.follower import SchemaFollower
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.tenant_schema import TenantSchema

SMALL = TenantKey("1", "small")


def route(tasks: list[CommittedTask], parents: dict[int, list[int]] | None = None) -> TenantRoute:
    tenant = tasks[0].tenant
    routes = [
        TaskRoute(
            task_id=task.task_id,
            start_key=task.span.start.hex(),
            end_key=task.span.end.hex(),
            task_epoch=1,
            sorter_node="s",
            sorter_url="http://127.0.0.1:1",
            parents=(parents or {}).get(task.task_id, []),
        )
        for task in tasks
    ]
    return TenantRoute(cluster_id=tenant.cluster_id, tenant_id=tenant.tenant_id, snapshot_ts=1, tasks=routes)


class Node:
    """One incarnation of the registry, as far as one tenant is concerned."""

    def __init__(self, objects: ObjectStore, tenant: TenantKey, nonce: str = "n", quiet_segments: int = 100) -> None:
        self.schema = TenantSchema(tenant)
        durable = DurableLog(objects, tenant, nonce, lambda _seconds: None)
        keeping = LogKeepingRules(quiet_segments=quiet_segments)
        self.follower = SchemaFollower(objects, self.schema, durable, FooterCache(), keeping, lambda: 0)

    def step(self, tasks: list[CommittedTask], statuses: dict[int, TaskStatus] | None = None) -> bool:
        told = {task.task_id: task.status() for task in tasks} if statuses is None else statuses
        return self.follower.step(route(tasks), told)

    def events(self) -> list[DdlEvent]:
        with self.schema.reading() as history:
            return history.ddl_events(0, 2**62)

    def lines(self) -> list[bytes]:
        out: list[bytes] = []
        while page := self.schema.read_log(len(out), 2**62, 0, stopping=lambda: True, now_ms=lambda: 0).lines:
            out += page
        return out


@functools.cache
def golden_rows() -> list[Row]:
    data = golden.load("everything")
    rows = golden.committed_rows(data.name).to_dicts()
    for row in rows:
        key = row["key"]
        row["table_id"] = 0 if key[:1] == b"m" else int.from_bytes(key[1:9], "big") - 2**63
        row["value"] = row["value"] if row["op"] == 1 else None
    return rows


def golden_store() -> MemoryObjectStore:
    data = golden.load("everything")
    objects = MemoryObjectStore()
    objects.put(data.schema_snap.key, data.schema_snap.data)
    return objects


def spans(*cuts: bytes) -> list[KeySpan]:
    bounds = [b"", *cuts, b""]
    return [KeySpan(start, end) for start, end in itertools.pairwise(bounds)]


@functools.cache
def all_at_once() -> tuple[list[DdlEvent], list[bytes]]:
    data = golden.load("everything")
    objects = golden_store()
    task = CommittedTask(objects, data.tenant, data.snapshot_ts)
    task.flush(data.end_ts, golden_rows())
    node = Node(objects, data.tenant)
    assert node.step([task])
    assert node.schema.resolved_ts == data.end_ts
    return node.events(), node.lines()


def test_the_snapshot_goes_once_it_is_durable_in_the_log_and_the_tenant_has_begun_with_it() -> None:
    data = golden.load("everything")
    objects = golden_store()
    task = CommittedTask(objects, data.tenant, data.snapshot_ts)
    task.flush(data.end_ts, golden_rows())
    begun = route([task]).model_copy(update={"snapshot_ts": data.snapshot_ts})

    def there() -> bool:
        return any(info.key == data.schema_snap.key for info in objects.list_after(data.schema_snap.key))

    node = Node(objects, data.tenant)
    waiting = begun.model_copy(update={"snapshot_ts": None, "tasks": []})
    node.follower.step(waiting, {})
    assert node.schema.sizes.log_objects == 1
    assert there(), "the meta server has not read it yet"
    node.follower.step(begun.model_copy(update={"snapshot_ts": data.snapshot_ts + 1}), {1: task.status()})
    assert there(), "the tenant has begun with another one"
    node.follower.step(begun, {1: task.status()})
    assert not there()
    again = Node(objects, data.tenant)
    again.follower.step(begun, {1: task.status()})
    assert (again.events(), again.lines()) == all_at_once()


class Forbidding(MemoryObjectStore):
    """Deletes nothing."""

    def delete(self, key: str) -> None:
        raise Unavailable(f"{key}: AccessDenied")


def test_the_schema_goes_on_where_the_snapshot_may_not_be_deleted() -> None:
    data = golden.load("everything")
    objects = Forbidding()
    objects.put(data.schema_snap.key, data.schema_snap.data)
    task = CommittedTask(objects, data.tenant, data.snapshot_ts)
    task.flush(data.end_ts, golden_rows())
    node = Node(objects, data.tenant)
    begun = route([task]).model_copy(update={"snapshot_ts": data.snapshot_ts})
    assert node.follower.step(begun, {1: task.status()})
    assert (node.schema.resolved_ts, node.schema.holds) == (data.end_ts, [])


def test_golden_schema_through_the_pool() -> None:
    events, _ = all_at_once()
    assert sorted(event.job_id for event in events) == sorted(
        job["job_id"] for job in golden.load("everything").expected("ddl")
    )


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_many_tasks_many_ticks_restarts_and_a_rival_tell_the_same(seed: int) -> None:
    rng = random.Random(seed)
    data = golden.load("everything")
    objects = golden_store()
    cuts = spans(encode_key(b"DB:114"), encode_key(b"Diff:100"), b"n", b"t\x80\x00\xff\x00")
    tasks = [
        CommittedTask(objects, data.tenant, data.snapshot_ts, task_id=at + 1, span=span) for at, span in enumerate(cuts)
    ]
    nodes = [Node(objects, data.tenant, "a", rng.choice([3, 100])), Node(objects, data.tenant, "b")]
    rows = golden_rows()
    while any(task.flushed_ts < data.end_ts for task in tasks):
        for task in rng.sample(tasks, rng.randint(1, len(tasks))):
            high = min(data.end_ts, task.flushed_ts + rng.randint(1, (data.end_ts - data.snapshot_ts) // 8))
            window = [row for row in rows if task.flushed_ts < row["commit_ts"] <= high and row["key"] in task.span]
            task.flush(high, window)
        at = rng.randrange(2)
        if rng.random() < 0.2:
            nodes[at] = Node(objects, data.tenant, f"r{rng.random()}")
        nodes[at].step(tasks)
        needed = [task for task in tasks if any(task.span.overlaps(span) for span in SCHEMA_SPANS)]
        assert len(needed) == len(tasks) - 1
        assert (nodes[at].schema.resolved_ts or 0) <= min(task.flushed_ts for task in needed)
    for node in [*nodes, Node(objects, data.tenant, "last")]:
        node.step(tasks)
        assert node.schema.resolved_ts == data.end_ts
        assert not node.schema.holds
        assert (node.events(), node.lines()) == all_at_once()


def small_pool() -> tuple[MemoryObjectStore, CommittedTask]:
    objects = MemoryObjectStore()
    info = {"id": 1, "db_name": name("d"), "state": 5}
    snap = {"version": 1, "snapshot_ts": 10, "databases": [{"db_info": info, "tables": [table_info(100, "t")]}]}
    objects.put(layout.schema_snap(SMALL), orjson.dumps(snap))
    return objects, CommittedTask(objects, SMALL, 10)


def diff(ts: int, number: int, value: bytes = b"{}") -> Row:
    return {
        "table_id": 0,
        "commit_ts": ts,
        "start_ts": ts - 1,
        "key": encode_key(b"Diff:%d" % number),
        "op": 1,
        "value": value,
    }


def versions(node: Node) -> int:
    with node.schema.reading() as history:
        return history.schema_version_at(2**62)


def test_a_promise_counts_only_once_its_manifests_are_read() -> None:
    objects, task = small_pool()
    node = Node(objects, SMALL)
    task.flush(20)
    ahead = task.status(progress_ts=90, manifest=task.number + 1)  # that manifest cannot be seen yet
    node.step([task], {1: ahead})
    assert node.schema.resolved_ts == 20
    task.flush(80, [diff(50, 1)])
    node.step([task], {1: ahead})
    assert node.schema.resolved_ts == 90
    assert versions(node) == 1


def test_without_a_sorter_the_manifests_tell() -> None:
    objects, task = small_pool()
    node = Node(objects, SMALL)
    task.flush(40, [diff(30, 1)])
    assert node.step([task], {})
    assert node.schema.resolved_ts == 40
    assert not node.step([task], {})


def test_the_slowest_task_holds_all() -> None:
    objects, _ = small_pool()
    tasks = [CommittedTask(objects, SMALL, 10, task_id=at + 2, span=span) for at, span in enumerate(spans(b"n"))]
    node = Node(objects, SMALL)
    tasks[0].flush(50, [diff(20, 1), diff(45, 2)])
    node.step(tasks)
    assert node.schema.resolved_ts == 10
    tasks[1].flush(30)
    node.step(tasks)
    assert (node.schema.resolved_ts, versions(node)) == (30, 1)


def test_progress_without_ddl_writes_nothing() -> None:
    objects, task = small_pool()
    node = Node(objects, SMALL)
    node.step([task])
    before = list(objects.list_after("schema/"))
    for ts in range(20, 60, 10):
        task.flush(ts, [{**diff(ts, 1), "key": encode_key(b"NextGlobalID")}])
        assert node.step([task])
    assert list(objects.list_after("schema/")) == before
    assert node.schema.resolved_ts == 50


def test_a_long_time_without_ddl_is_kept_so_that_a_start_need_not_read_it_all() -> None:
    objects, task = small_pool()
    node = Node(objects, SMALL, quiet_segments=3)
    for ts in range(20, 60, 10):
        task.flush(ts, [{**diff(ts, 1), "key": encode_key(b"NextGlobalID")}])
        node.step([task])
    assert len(list(objects.list_after("schema/"))) == 2
    again = Node(objects, SMALL)
    assert again.follower.load()
    assert again.schema.resolved_ts == 40


def test_the_snapshot_may_come_late_and_may_be_removed_later() -> None:
    objects, task = small_pool()
    snap = objects.get(layout.schema_snap(SMALL))
    objects.delete(layout.schema_snap(SMALL))
    node = Node(objects, SMALL)
    assert not node.step([task])
    assert node.schema.holds[0].object == layout.schema_snap(SMALL)
    assert "not arrived" in node.schema.holds[0].reason
    objects.put(layout.schema_snap(SMALL), snap[:50])
    assert not node.step([task])
    assert "not valid JSON" in node.schema.holds[0].reason
    objects.put(layout.schema_snap(SMALL), snap)
    task.flush(20)
    assert node.step([task])
    assert not node.schema.holds
    objects.delete(layout.schema_snap(SMALL))
    again = Node(objects, SMALL)
    assert again.step([task])
    assert again.schema.resolved_ts == 20


def test_an_unreadable_row_holds_the_schema_just_below_it() -> None:
    objects, task = small_pool()
    bad = {**diff(30, 7), "key": encode_key(b"DB:1", b"Table:100"), "value": b'{"id":'}
    task.flush(60, [diff(20, 1), diff(30, 2), bad, diff(40, 3)])
    node = Node(objects, SMALL)
    for _ in range(2):
        node.step([task])
        assert node.schema.resolved_ts == 29
        assert versions(node) == 1
        (hold,) = node.schema.holds
        assert hold.stage == "schema"
        assert hold.object == bad["key"].hex()
        assert "JSON" in hold.reason or "Decode" in hold.reason


def test_an_unreadable_job_row_is_told() -> None:
    objects, task = small_pool()
    key = b"t" + (DDL_JOB_TABLE_ID + 2**63).to_bytes(8, "big") + b"_r" + (5 + 2**63).to_bytes(8, "big")
    task.flush(60, [{**diff(30, 7), "table_id": DDL_JOB_TABLE_ID, "key": key, "value": b"\x80broken"}])
    node = Node(objects, SMALL)
    node.step([task])
    assert node.schema.resolved_ts == 29
    assert node.schema.holds[0].object == key.hex()


def test_a_damaged_segment_is_told_and_goes_on_when_it_is_whole_again() -> None:
    objects, task = small_pool()
    task.flush(60, [diff(30, 1)])
    (segment,) = [one.key for one in objects.list_after("committed/") if "/segment/" in one.key]
    whole = objects.get(segment)
    objects.put(segment, whole[:-1] + b"X")
    node = Node(objects, SMALL)
    node.step([task])
    assert node.schema.resolved_ts == 10
    assert node.schema.holds[0].object == segment
    objects.put(segment, whole)
    node.step([task])
    assert (node.schema.resolved_ts, node.schema.holds) == (60, [])


def test_missing_tasks_are_told() -> None:
    objects, task = small_pool()
    node = Node(objects, SMALL)
    node.follower.step(TenantRoute(cluster_id="1", tenant_id="small", snapshot_ts=10, tasks=[]), {})
    assert "tasks" in node.schema.holds[0].reason
    half = CommittedTask(objects, SMALL, 10, task_id=9, span=KeySpan(b"n", WHOLE.end))
    node.step([half])
    assert "6d" in node.schema.holds[0].reason
    node.step([task])
    assert not node.schema.holds


@pytest.mark.parametrize("knows", [True, False], ids=["new route", "old route"])
def test_the_schema_goes_on_across_a_split(knows: bool) -> None:
    objects, parent = small_pool()
    node = Node(objects, SMALL)
    parent.flush(50, [diff(20, 1)])
    node.step([parent])
    parent.flush(70, [diff(60, 2)])
    left, right = (
        CommittedTask(objects, SMALL, 10, task_id=at, span=span) for at, span in enumerate(spans(encode_key(b"E")), 2)
    )
    parent.seal(left, right)
    routed = route([left, right], {2: [1], 3: [1]}) if knows else route([parent])
    told = {task.task_id: task.status(progress_ts=999) for task in (left, right)} if knows else {}
    node.follower.step(routed, told)
    assert (node.schema.resolved_ts, versions(node)) == (70, 2)
    left.inherit(parent)
    left.flush(90, [diff(80, 3)])
    node.follower.step(routed, {})
    assert node.schema.resolved_ts == 70
    right.inherit(parent)
    right.flush(100)
    fresh = Node(objects, SMALL)
    for one in (node, fresh):
        one.follower.step(routed, {})
        assert (one.schema.resolved_ts, versions(one)) == (90, 3)
        assert one.schema.holds == []
    assert node.lines() == fresh.lines()


def test_a_registry_that_comes_after_a_split_takes_the_rows_of_a_shared_segment_once() -> None:
    objects, parent = small_pool()
    parent.flush(50, [diff(20, 1), diff(40, 2)])
    heirs = [
        CommittedTask(objects, SMALL, 10, task_id=at, span=span) for at, span in enumerate(spans(encode_key(b"E")), 2)
    ]
    parent.seal(*heirs)
    for heir in heirs:
        heir.inherit(parent)
    node = Node(objects, SMALL)
    node.step(heirs)
    assert (node.schema.resolved_ts, versions(node)) == (50, 2)
    assert len(node.lines()) == len(set(node.lines()))
