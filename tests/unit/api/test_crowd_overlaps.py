"""One huge transaction in segments that overlap in keys: a shard writes one for each chunk, in its sources' order."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from support.effort import cases
from support.review_world import SNAPSHOT, TENANT, change, review_world
from support.row_bytes import compact, row_v2
from support.schema_records import column, database, name, table, table_info
from tistream.format.segment import SCHEMA, SegmentRef
from tistream.pool.segment_index import SegmentIndex
from tistream.pool.writer import write_segment
from tistream.read.cursor import Place, Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.plan import OP_DELETE, OP_PUT
from tistream.read.scan import Budget, Scan
from tistream.read.source import TenantSource
from tistream.storage.backends.memory import MemoryObjectStore

COMMIT_TS, END_TS = 500, 1_000
ROWS = 3_000
BUDGET = 128
UNIQUE = {
    "id": 1,
    "idx_name": name("u"),
    "idx_cols": [{"name": name("u"), "offset": 0, "length": -1}],
    "state": 5,
    "is_unique": True,
}
RECORDS = [
    database(10, 1, "d"),
    table(10, 1, table_info(100, "t", [column(1, "u", flag=1), "v"], index_info=[UNIQUE])),
]


def rows() -> list[dict[str, Any]]:
    """Updates; every third one changes the visible key, and so is a delete and a put."""
    out = []
    for handle in range(ROWS):
        u = handle + ROWS * (handle % 3 == 0)
        new, old = row_v2({1: compact(u), 2: b"\2"}), row_v2({1: compact(handle), 2: b"\1"})
        out.append(change(COMMIT_TS, 100, handle, new, old))
    return out


def source_of(groups: list[list[dict[str, Any]]]) -> TenantSource:
    """One task with one segment for each group, in the order given."""
    objects, refs = MemoryObjectStore(), list[SegmentRef]()
    like = review_world(RECORDS, rows()[:1], end_ts=END_TS)
    for number, group in enumerate(groups):
        frame = pl.DataFrame(group, schema_overrides={"op": pl.Int8, "txn_source": pl.Int64}).sort("key")
        body, ref = write_segment(frame.select(SCHEMA.names).to_arrow().cast(SCHEMA), f"s{number}")
        objects.put(ref.key, body)
        refs.append(ref)
    index = SegmentIndex()
    index.update(tuple(refs))
    cache = GroupCache(objects, 64 << 20)
    return TenantSource(threading.RLock(), lambda: like.history, lambda: [index], cache, lambda: None)


def at_random(count: int) -> list[list[dict[str, Any]]]:
    """Every segment holds keys from all over."""
    chance = random.Random(count)
    groups: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for row in rows():
        groups[chance.randrange(count)].append(row)
    return [group for group in groups if group]


def nested() -> list[list[dict[str, Any]]]:
    """Segments of which each lies within the one before; the first reaches over all, its middle nearly empty."""
    every = rows()
    edges = [step * 175 for step in range(9)]
    return [every[low:high] + every[ROWS - high : ROWS - low] for low, high in pairwise(edges)] + [every[1_400:1_600]]


SHAPES = {
    "one": lambda: [rows()],
    "a shard's eight": lambda: at_random(8),
    "many": lambda: at_random(40),
    "tiny": lambda: at_random(120),
    "nested": nested,
}


@pytest.mark.parametrize("shape", cases(["one", "a shard's eight", "many", "nested"], ["tiny"]))
def test_pieces_of_overlapping_segments_stay_within_the_budget(shape: str) -> None:
    source, budget = source_of(SHAPES[shape]()), Budget(BUDGET, BUDGET)
    keys = [row["key"] for row in rows()]
    want = [(OP_DELETE, key) for at, key in enumerate(keys) if at % 3 == 0] + [(OP_PUT, key) for key in keys]

    def events(start: Position) -> list[tuple[int, bytes]]:
        out, batches = [], 0
        for batch in Scan(source, Scope(TENANT), start, END_TS, budget).batches():
            assert len(batch.events) <= BUDGET
            batches += bool(len(batch.events))
            positions = [batch.events.position(at) for at in range(len(batch.events))]
            out += [(at.op, at.key) for at in positions]
        assert batches <= 4 * (len(out) // BUDGET + 3), "pieces are not tiny either"
        return out

    assert events(Position(SNAPSHOT)) == want
    chance = random.Random(7)
    for place in (0, len(want) - 1, *(chance.randrange(len(want)) for _ in range(3))):
        op, key = want[place]
        inside = Position(COMMIT_TS, Place.ROW, COMMIT_TS - 1, 100, op, key)
        assert events(inside) == want[place + 1 :]
