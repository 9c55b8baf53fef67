"""format=arrow and format=parquet say what NDJSON says, in the same order."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from support.arrow_answer import arrow_batches, arrow_events, parquet_events, parquet_tables
from support.effort import cases
from support.pull_world import World, golden_world
from support.review_world import SNAPSHOT, change, review_world
from support.row_bytes import compact, row_v2
from support.schema_records import column, database, table, table_info
from tistream.errors import CorruptObject
from tistream.read.cursor import Position, Scope, decode
from tistream.read.scan import Budget

READ = {"arrow": arrow_events, "parquet": parquet_events}
Event = dict[str, Any]


def ndjson(body: bytes) -> list[Event]:
    return [json.loads(line) for line in body.splitlines()]


def same(one: World, form: str, *names: str, start: Position, **more: Any) -> list[Event]:
    """What a format says; fails unless it is what NDJSON says."""
    told = READ[form](one.pull(*names, start=start, form=form, **more))
    assert told == ndjson(one.pull(*names, start=start, **more))
    return told


@pytest.fixture(scope="module", params=cases(["everything"], ["large"]))
def world(request: pytest.FixtureRequest) -> World:
    return golden_world(request.param, tasks=3, budget=Budget(3_000, 500, 1 << 20, 3_000))


@pytest.mark.parametrize("form", READ)
def test_a_tenant_of_every_type_and_shape(world: World, form: str) -> None:
    told = same(world, form, start=Position(world.snapshot_ts))
    assert len(told) > 1_000


@pytest.mark.parametrize("form", READ)
def test_every_table_by_itself(world: World, form: str) -> None:
    names = {
        (event["database"], event["table"])
        for event in ndjson(world.pull(start=Position(world.snapshot_ts)))
        if event["type"] == "row"
    }
    for scope in sorted(names):
        same(world, form, *scope, start=Position(world.snapshot_ts))


@pytest.mark.parametrize("form", READ)
def test_pages_go_on_where_the_last_one_ended(world: World, form: str) -> None:
    at, told = Position(world.snapshot_ts), 0
    for limit in (1, 7, 977, 5_000, 20_000):
        *events, end = same(world, form, start=at, limit=limit)
        told += len(events)
        at = decode(Scope(world.tenant), end["cursor"])
    assert told > 1_000


def test_rows_of_one_table_come_in_the_order_of_the_answer() -> None:
    one = golden_world("everything", tasks=4, budget=Budget(3_000, 500, 1 << 20, 3_000))
    for names in (("shop", "busy"), ("shop", "orders")):
        seqs: list[int] = []
        for batch in arrow_batches(one.pull(*names, start=Position(one.snapshot_ts), form="arrow")):
            if "seq" in batch.schema.names:
                seqs += batch.column("seq").to_pylist()
        assert seqs == list(range(len(seqs)))
        assert len(seqs) > 10


PK = column(1, "id", flag=3)


def test_columns_have_the_types_that_the_page_on_the_api_names() -> None:
    cols = [
        PK, column(2, "u", tp=8, flag=32), column(3, "f", tp=4), column(4, "d", tp=5),
        column(5, "m", tp=0xF6, flen=12), column(6, "b", tp=252), column(7, "j", tp=0xF5), column(8, "s", tp=15),
    ]  # fmt: skip
    cols[5]["type"]["Charset"] = "binary"
    info = table_info(100, "t", cols, pk_is_handle=True)
    one = review_world([database(10, 1, "d"), table(10, 1, info)], [change(20, 100, 1, row_v2({2: compact(7)}))])
    (batch, end) = arrow_batches(one.pull("d", "t", start=Position(SNAPSHOT), form="arrow"))
    kinds = {field.name: field.type for field in batch.schema.field("row").type}
    assert kinds == {
        "id": pa.int64(), "u": pa.uint64(), "f": pa.float32(), "d": pa.float64(), "m": pa.large_string(),
        "b": pa.large_binary(), "j": pa.large_string(), "s": pa.large_string(),
    }  # fmt: skip
    assert batch.schema.field("old_row").type == batch.schema.field("row").type
    assert batch.schema.field("row").type.field("u").metadata == {b"tidb.type": b"bigint unsigned"}
    assert batch.schema.metadata[b"tistream.database"] == b"d"
    assert end.schema.metadata[b"tistream.type"] == b"resolved"


@pytest.mark.parametrize("form", READ)
def test_a_table_that_shows_nothing_and_one_without_a_key(form: str) -> None:
    hidden = table_info(100, "t", [column(1, "g", generated_expr_string="1")])
    keyless = table_info(101, "k", ["v"])
    rows = [
        change(20, 100, 5, row_v2({})),
        change(20, 101, -7, row_v2({1: compact(1)})),
        change(30, 101, -7, None, row_v2({1: compact(1)})),
        change(30, 100, 5, None, row_v2({})),
    ]
    one = review_world([database(10, 1, "d"), table(10, 1, hidden), table(10, 1, keyless)], rows)
    *told, _ = same(one, form, start=Position(SNAPSHOT))
    assert [(event["op"], event["key"], event["row"]) for event in told] == [
        ("put", {"_tidb_rowid": "5"}, {}),
        ("put", {"_tidb_rowid": "-7"}, {"v": 1}),
        ("delete", {"_tidb_rowid": "5"}, None),
        ("delete", {"_tidb_rowid": "-7"}, None),
    ]


def test_parquet_files_are_one_per_shape_and_say_whose_they_are() -> None:
    one = golden_world("everything", tasks=2)
    tables, end = parquet_tables(one.pull(start=Position(one.snapshot_ts), form="parquet"))
    metadata = [found.schema.metadata for found in tables]
    assert {told[b"tistream.type"] for told in metadata} == {b"row", b"ddl"}
    assert len({found.schema.serialize().to_pybytes() for found in tables}) == len(tables)
    assert end["resolved_ts"] == str(one.end_ts)


@pytest.mark.parametrize("form", READ)
def test_an_answer_that_is_cut_shows_it(form: str) -> None:
    one = golden_world("everything", tasks=1, budget=Budget(500, 100, 1 << 20, 500))
    late = sorted(info.key for info in one.objects.list_after("committed"))[-1]
    one.objects.put(late, one.objects.get(late)[:-9] + bytes(9))
    got: list[bytes] = []
    with pytest.raises(CorruptObject):
        got.extend(one.answer(start=Position(one.snapshot_ts), form=form))
    body = b"".join(got)
    if form == "parquet":
        assert b"end.json" not in body
        assert body[-1024:] != bytes(1024)
    else:
        kinds = [batch.schema.metadata[b"tistream.type"] for batch in arrow_batches(body)]
        assert kinds
        assert b"resolved" not in kinds
