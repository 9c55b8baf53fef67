"""A pool with DDL in it, and incarnations of the registry that follow it on a clock of the test's."""

from __future__ import annotations

from typing import Any

import orjson

from support.committed_pool import CommittedTask, Row
from support.schema_records import name, table_info
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.pool.footers import FooterCache
from tistream.schema.history import History
from tistream.schema.tidb.meta_key import encode_key
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream_schema.durable_log import DurableLog
from tistream_schema.follower import SchemaFollower
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.tenant_schema import TenantSchema

TENANT = TenantKey("1", "small")
SNAPSHOT_TS = 10


def routed(*tasks: tuple[int, KeySpan]) -> TenantRoute:
    """The tenant with these tasks, of which no sorter tells anything."""
    nobody = {"task_epoch": 1, "sorter_node": None, "sorter_url": None}
    routes = [
        TaskRoute(task_id=one, start_key=span.start.hex(), end_key=span.end.hex(), **nobody) for one, span in tasks
    ]
    return TenantRoute(cluster_id=TENANT.cluster_id, tenant_id=TENANT.tenant_id, snapshot_ts=SNAPSHOT_TS, tasks=routes)


ROUTE = routed((1, WHOLE))


def pool(objects: ObjectStore) -> CommittedTask:
    """A tenant whose snapshot has one table, and its one task."""
    put_snapshot(objects)
    return CommittedTask(objects, TENANT, SNAPSHOT_TS)


def put_snapshot(objects: ObjectStore) -> None:
    info = {"id": 1, "db_name": name("d"), "state": 5}
    snap = {"version": 1, "snapshot_ts": SNAPSHOT_TS, "databases": [{"db_info": info, "tables": [table_info(99, "t")]}]}
    objects.put(layout.schema_snap(TENANT), orjson.dumps(snap))


def meta_row(ts: int, *key: bytes, value: Any) -> Row:
    row = {"table_id": 0, "commit_ts": ts, "start_ts": ts - 1, "key": encode_key(*key)}
    return {**row, "op": 2 if value is None else 1, "value": None if value is None else orjson.dumps(value)}


def truncate(ts: int) -> list[Row]:
    """At `ts` table d.t gets another id: that of the ts before goes."""
    return [
        meta_row(ts, b"DB:1", b"Table:%d" % (ts + 100), value=table_info(ts + 100, "t")),
        meta_row(ts, b"DB:1", b"Table:%d" % (ts + 99), value=None),
        meta_row(ts, b"Diff:%d" % ts, value={}),
    ]


class Node:
    """One incarnation of the registry. `clock` is the test's, in ms."""

    def __init__(self, objects: ObjectStore, clock: list[int], keeping: LogKeepingRules, nonce: str = "n") -> None:
        self.schema = TenantSchema(TENANT)
        self.durable = DurableLog(objects, TENANT, nonce, lambda _seconds: None)
        self.follower = SchemaFollower(objects, self.schema, self.durable, FooterCache(), keeping, lambda: clock[0])

    def step(self, route: TenantRoute = ROUTE) -> bool:
        return self.follower.step(route, {})

    @property
    def resolved_ts(self) -> int:
        return self.schema.resolved_ts or 0

    def answers(self, low_ts: int) -> list[Any]:
        with self.schema.reading() as history:
            return answers(history, low_ts)


def answers(history: History, low_ts: int) -> list[Any]:
    """What a history tells from low_ts to its end, of a table that is truncated now and then."""
    high_ts = history.resolved_ts
    times = range(low_ts, high_ts, max(1, (high_ts - low_ts) // 50))
    return [
        [(ts, history.tables(ts, "d"), history.schema_version_before(ts + 1)) for ts in times],
        history.tables_named("d", "t", low_ts, high_ts),
        [history.ever_had_id(one) for one in range(99, high_ts + 110, 7)],
    ]


def whole(task: CommittedTask, objects: MemoryObjectStore) -> Node:
    """A registry that has read the whole pool by itself, and forgotten nothing."""
    own = MemoryObjectStore()
    for info in objects.list_after(""):
        if not info.key.startswith("schema/"):
            own.put(info.key, objects.get(info.key))
    put_snapshot(own)  # the registry that was first has deleted it
    node = Node(own, [0], LogKeepingRules(base_objects=1 << 30, quiet_segments=1 << 30))
    # It reads what no registry could read any more: the pool of these tests never deletes rows.
    node.follower._from_where = node.follower._resolved_ts  # type: ignore[method-assign]
    node.step()
    assert node.resolved_ts == task.flushed_ts
    return node


def log_keys(objects: MemoryObjectStore) -> list[str]:
    return [info.key for info in objects.list_after(layout.schema_log_prefix(TENANT))]
