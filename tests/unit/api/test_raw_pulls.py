"""Pulls of RawKV: every change once and in order, in pages and streams, of a keyspace and of a range of its keys."""

from __future__ import annotations

import functools
import io
import json
import tarfile
from base64 import b64decode
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import raw_set
from support.pull_world import World, world_of
from tistream.errors import InvalidRequest
from tistream.model.raw_row import EXPIRE, keyspace_of, table_id
from tistream.model.span import KeySpan
from tistream.read.cursor import Position, Scope, decode
from tistream.read.raw_scope import RawScope
from tistream.read.scan import Budget
from tistream.schema.history import History
from tistream_api.encode.raw_encoding import EXPIRE_MAX, expire_at

SMALL = Budget(rows=256, first_rows=64)


def rows_of(truth: pl.DataFrame) -> pl.DataFrame:
    """In the form of the pool."""
    old = pl.lit(None, pl.Binary).alias("old_value")
    return truth.rename({"expire_ts": EXPIRE}).with_columns(old, pl.col("commit_ts").alias("start_ts"))


def world_with(truth: pl.DataFrame, budget: Budget | None = None, tasks: int = 3) -> World:
    loaded = raw_set.load()
    history = History(loaded.snapshot_ts)
    history.advance(loaded.end_ts)
    return world_of(loaded, rows_of(truth), history, tasks=tasks, ticks=12, budget=budget)  # type: ignore[arg-type]


@functools.cache
def golden(budget: Budget | None = None) -> World:
    return world_with(raw_set.truth(), budget)


def scope_of(keyspace: int | None = None, start: bytes = b"", end: bytes = b"") -> RawScope:
    return RawScope(raw_set.TENANT, keyspace=keyspace, users=KeySpan(start, end))


def lines(world: World, scope: RawScope, start: Position | None = None, limit: int | None = None) -> list[Any]:
    at = start or Position(world.snapshot_ts)
    return [json.loads(one) for one in b"".join(world.answer(scope=scope, start=at, limit=limit)).splitlines()]


def event(table: int, key: bytes, commit_ts: int, op: int, value: bytes | None, expire_ts: int) -> tuple[Any, ...]:
    return (keyspace_of(table), key[4:], commit_ts, ("", "put", "delete")[op], value, expire_ts)


def shown(line: dict[str, Any]) -> tuple[Any, ...]:
    assert line["type"] == "raw"
    expire = line["expire_at"]
    stamp = 0 if expire is None else int(datetime.fromisoformat(expire).timestamp())
    value = None if line["value"] is None else b64decode(line["value"], validate=True)
    key = b64decode(line["key"], validate=True)
    return (int(line["keyspace"]), key, int(line["commit_ts"]), line["op"], value, stamp)


def wanted(truth: pl.DataFrame, keyspace: int | None = None, start: bytes = b"", end: bytes = b"") -> list[Any]:
    found = [event(*row) for row in truth.sort("commit_ts", "key").iter_rows()]
    kept = [one for one in found if keyspace is None or one[0] == keyspace]
    return [one for one in kept if one[1] >= start and (not end or one[1] < end)]


@pytest.mark.parametrize("budget", [None, SMALL])
@pytest.mark.parametrize(
    "part", [(None,), (0,), (5,), (4,), (0, b"bin\0", b"k"), (5, b"user:"), (0, b"", b"5")], ids=str
)
def test_a_pull_has_every_change_once_in_order(part: Any, budget: Budget | None) -> None:
    *events, end = lines(golden(budget), scope_of(*part))
    assert [shown(one) for one in events] == wanted(raw_set.truth(), *part)
    assert (end["type"], end["resolved_ts"]) == ("resolved", str(raw_set.load().end_ts))


@pytest.mark.parametrize("limit", [7, 1_000])
def test_pages_that_continue_at_their_cursors_have_every_change_once(limit: int) -> None:
    world, scope = golden(SMALL), scope_of(5, b"b", b"r")
    at, found = Position(world.snapshot_ts), []
    while True:
        *events, end = lines(world, scope, at, limit)
        assert len(events) <= limit
        found += [shown(one) for one in events]
        at = decode(scope, end["cursor"])
        if end["type"] == "resolved" and int(end["resolved_ts"]) >= world.end_ts:
            break
    assert found == wanted(raw_set.truth(), 5, b"b", b"r")


# Attack: a writer gives all keys of a batch one timestamp, and they are more than are held at once
@pytest.mark.parametrize("limit", [100, None])
def test_a_timestamp_of_many_keys_is_cut_within(limit: int | None) -> None:
    ts = raw_set.load().snapshot_ts + 9
    keys = [b"r\0\0" + bytes([space]) + f"{number:05}".encode() for space in (0, 5) for number in range(1_500)]
    rows = [
        (table_id(key[3]), key, ts, 1 + number % 2, None if number % 2 else b"v", 0) for number, key in enumerate(keys)
    ]
    truth = pl.DataFrame(rows, schema=raw_set.truth().schema, orient="row")
    world, scope = world_with(truth, SMALL, tasks=1), scope_of()
    at, found = Position(world.snapshot_ts), []
    while at.low_ts < world.end_ts:
        *events, end = lines(world, scope, at, limit)
        found += [shown(one) for one in events]
        at = decode(scope, end["cursor"])
    # Within one timestamp: by keyspace, deletes before puts, by key.
    assert found == sorted(wanted(truth), key=lambda one: (one[0], one[3] == "put", one[1]))


def test_arrow_and_parquet_have_the_same_events() -> None:
    world, scope = golden(SMALL), scope_of()
    start = Position(world.snapshot_ts)
    stream = b"".join(world.answer(scope=scope, start=start, form="arrow"))
    table = pa.ipc.open_stream(stream).read_all()
    archive = io.BytesIO(b"".join(world.answer(scope=scope, start=start, form="parquet")))
    with tarfile.open(fileobj=archive) as tar:
        files = [file for name in tar.getnames() if name.endswith(".parquet") and (file := tar.extractfile(name))]
        parquet = pa.concat_tables([pq.read_table(io.BytesIO(file.read())) for file in files])
    assert table.schema.metadata[b"tistream.type"] == b"raw"
    for found in (table, parquet):
        rows = found.to_pylist()
        assert [row["seq"] for row in rows] == list(range(len(rows)))
        stamps = [0 if row["expire_at"] is None else int(row["expire_at"].timestamp()) for row in rows]
        events = [
            (row["keyspace"], row["key"], row["commit_ts"], row["op"], row["value"], stamp)
            for row, stamp in zip(rows, stamps, strict=True)
        ]
        assert events == wanted(raw_set.truth())


def test_a_cursor_is_of_its_keyspace_and_range_alone() -> None:
    scopes = [scope_of(), scope_of(0), scope_of(5), scope_of(5, b"a"), scope_of(5, b"", b"a"), Scope(raw_set.TENANT)]
    assert len({scope.digest() for scope in scopes}) == len(scopes)
    *_, end = lines(golden(), scope_of(0))
    with pytest.raises(InvalidRequest, match="belongs to another"):
        decode(scope_of(5), end["cursor"])


@pytest.mark.parametrize(
    ("expire_ts", "text"),
    [
        (0, None),
        (1_795_196_534, "2026-11-20T17:42:14Z"),
        (EXPIRE_MAX, "9999-12-31T23:59:59Z"),
        (2**62, "9999-12-31T23:59:59Z"),
        (-5, "1970-01-01T00:00:00Z"),
    ],
)
def test_a_time_of_expiry_is_rfc_3339_whatever_is_stored(expire_ts: int, text: str | None) -> None:
    assert expire_at(expire_ts) == text
