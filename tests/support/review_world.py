"""Tenants made by hand: schema records and committed rows in, one pull out. For the review's tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from support.pull_world import World, write_pool
from support.row_bytes import comparable_int
from tistream.model.ids import TenantKey
from tistream.read.cursor import Position, Scope, decode
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Budget
from tistream.read.source import TenantSource
from tistream.schema.history import History
from tistream.schema.records import Record
from tistream.storage.backends.memory import MemoryObjectStore

SNAPSHOT = 10
TENANT = TenantKey("7", "acme")
Event = dict[str, Any]
_TYPES = {
    "table_id": pl.Int64, "commit_ts": pl.Int64, "start_ts": pl.Int64, "key": pl.Binary, "op": pl.Int8,
    "value": pl.Binary, "old_value": pl.Binary, "txn_source": pl.Int64,
}  # fmt: skip


def change(
    commit_ts: int,
    table_id: int,
    handle: int | bytes,
    value: bytes | None,
    old: bytes | None = None,
    *,
    start_ts: int | None = None,
) -> dict[str, Any]:
    """One committed row; `handle` as an integer or as the encoded datums of a common handle; no value: a delete."""
    tail = comparable_int(handle) if isinstance(handle, int) else handle.ljust(9, b"\0")
    return {
        "table_id": table_id,
        "commit_ts": commit_ts,
        "start_ts": commit_ts - 1 if start_ts is None else start_ts,
        "key": b"t" + comparable_int(table_id) + b"_r" + tail,
        "op": 2 if value is None else 1,
        "value": value,
        "old_value": old,
        "txn_source": None,
    }


def review_world(
    records: Iterable[Record],
    rows: Sequence[dict[str, Any]] = (),
    *,
    end_ts: int = 1_000,
    tasks: int = 1,
    budget: Budget | None = None,
) -> World:
    """History and pool of one tenant, resolved through `end_ts`."""
    history = History(SNAPSHOT)
    history.apply(sorted(records, key=lambda record: (record.commit_ts, record.start_ts)))
    history.advance(end_ts)
    objects = MemoryObjectStore()
    frame = pl.DataFrame(list(rows), schema=_TYPES)
    ticks = [SNAPSHOT, (SNAPSHOT + end_ts) // 2, end_ts]
    indexes = write_pool(objects, TENANT, frame, tasks, ticks) if rows else []
    cache = GroupCache(objects, 64 << 20)
    source = TenantSource(threading.RLock(), lambda: history, lambda: indexes, cache, lambda: None)
    return World(TENANT, SNAPSHOT, end_ts, objects, indexes, history, source, budget or Budget())


def pulled(one: World, *names: str, start: int = SNAPSHOT) -> list[Event]:
    """Every event of one uninterrupted pull, without its end."""
    return [json.loads(line) for line in one.pull(*names, start=Position(start)).splitlines()][:-1]


def paged(one: World, *names: str, limit: int) -> list[Event]:
    """The same page by page; checks each page's end."""
    out: list[Event] = []
    at = Position(SNAPSHOT)
    for _ in range(100_000):
        *events, end = [json.loads(line) for line in one.pull(*names, start=at, limit=limit).splitlines()]
        assert len(events) <= limit
        at = decode(Scope(one.tenant, *names), end["cursor"])
        out += events
        if end["type"] == "resolved" and int(end["resolved_ts"]) == one.end_ts:
            return out
        assert events
    raise AssertionError("no end")


def brief(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """(ts, op, table, key, row, old_row) of rows; (ts, "ddl", database, table, action) of ddl events."""
    return [
        (int(e["commit_ts"]), e["op"], e["table"], e["key"], e["row"], e["old_row"])
        if e["type"] == "row"
        else (int(e["commit_ts"]), "ddl", e["database"], e["table"], e["action"])
        for e in events
    ]
