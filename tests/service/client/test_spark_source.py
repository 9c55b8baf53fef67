"""The Spark data source `tistream` beside a platform. Most tests take its readers as Spark does, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from support import golden, spark
from support.pull import Consumer
from tistream_client import RowEvent, SchemaChanged, Tenant, WrongArgument
from tistream_client.spark import register
from tistream_client.spark.offsets import Offset
from tistream_client.spark.options import parsed
from tistream_client.spark.plan import ChangesPart, Planned, batch_parts, planned, read
from tistream_client.spark.stream import EventStream
from tistream_client.transport import utc_now

EVERYTHING = golden.load("everything")
LOW, END = EVERYTHING.snapshot_ts, EVERYTHING.end_ts
Row = dict[str, Any]


@pytest.fixture(scope="module")
def session(loaded: Consumer) -> Iterator[SparkSession]:
    with spark.local_session(spark.CLIENT) as one:
        one.conf.set("spark.sql.shuffle.partitions", "1")  # 200 tasks would take most of the time
        register(one)
        yield one


def of(loaded: Consumer, table: str, **options: str) -> dict[str, str]:
    """The options that read a table."""
    return {"url": loaded.url, "cluster": "7", "tenant": "acme", "table": table, **options}


def plan_of(loaded: Consumer, table: str, **options: str) -> Planned:
    return planned(parsed(of(loaded, table, **options), utc_now))


def rows_of(plan: Planned, parts: list[Any] | None = None) -> list[Row]:
    """The rows of the parts, by default of all parts of a batch."""
    batches = [batch for part in parts or batch_parts(plan) for batch in read(plan, part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def events(acme: Tenant, table: str, **range_: Any) -> list[RowEvent]:
    changes = acme.changes(*table.split("."), events="rows", **range_)
    return [event for event in changes if isinstance(event, RowEvent)]


def test_the_parts_of_a_batch_are_the_changes_in_order(loaded: Consumer, acme: Tenant) -> None:
    plan = plan_of(loaded, "shop.orders", pageSize="20")
    parts: list[Any] = batch_parts(plan)
    assert [part.low for part in parts] == [LOW, *(part.high for part in parts[:-1])]
    assert parts[-1].high >= END
    found = rows_of(plan, parts)
    own = events(acme, "shop.orders")
    cuts = [LOW, *(event.commit_ts for event in own[::40]), parts[-1].high]
    assert rows_of(plan, [ChangesPart(*pair) for pair in pairwise(cuts)]) == found
    assert [(row["op"], row["commit_ts"], row["start_ts"], row["schema_version"]) for row in found] == [
        (event.op, event.commit_ts, event.start_ts, event.schema_version) for event in own
    ]
    for side in ("key", "row", "old_row"):
        shown = [None if (values := getattr(event, side)) is None else values["id"] for event in own]
        assert [None if row[side] is None else str(row[side]["id"]) for row in found] == shown
    amounts = [row["row"] and row["row"]["amount"] for row in found]
    assert [amount and f"{amount:f}" for amount in amounts] == [event.row and event.row["amount"] for event in own]
    assert [row["commit_time"] for row in found] == [event.commit_time for event in own]
    half = own[len(own) // 2].commit_ts
    some = rows_of(plan_of(loaded, "shop.orders", startingTs=str(half), endingTs=str(END), columns="note"))
    assert [row["commit_ts"] for row in some] == [event.commit_ts for event in own if event.commit_ts > half]
    assert {tuple(row["row"]) for row in some if row["row"]} == {("note",)}


def test_a_table_as_of_a_time(loaded: Consumer, acme: Tenant) -> None:
    rows = [dict(row.row) for row in acme.rows("shop.orders", at=END)]
    found = rows_of(plan_of(loaded, "shop.orders", asOf=str(END), pageSize="9", columns="note,id"))
    assert found == [{"note": row["note"], "id": int(row["id"])} for row in rows]
    keys = {"fromKey": '{"id": 3}', "toKey": '{"id": 6}'}
    assert [row["id"] for row in rows_of(plan_of(loaded, "shop.orders", asOf="now", **keys))] == [3, 4, 5]


def test_filters_are_those_of_the_api(loaded: Consumer, acme: Tenant) -> None:
    plan = plan_of(loaded, "shop.orders", where="amount > 5000", operations="update")
    expected = events(acme, "shop.orders", where="amount > 5000", operations=["update"])
    assert 0 < len(expected) < len(events(acme, "shop.orders"))
    assert [row["commit_ts"] for row in rows_of(plan)] == [event.commit_ts for event in expected]
    rows = rows_of(plan_of(loaded, "shop.orders", asOf="now", where="amount > 5000"))
    assert rows == [row for row in rows_of(plan_of(loaded, "shop.orders", asOf="now")) if (row["amount"] or 0) > 5000]
    query = Query(loaded, where="amount > 5000", operations="update")
    assert [row["commit_ts"] for row in query.run()] == [event.commit_ts for event in expected]


def test_a_snapshot_is_rows_and_then_every_change_above_it(loaded: Consumer, acme: Tenant) -> None:
    own = events(acme, "shop.orders")
    ts = own[len(own) // 2].commit_ts
    found = rows_of(plan_of(loaded, "shop.orders", snapshot=str(ts), endingTs=str(END)))
    reads = [row for row in found if row["op"] == "read"]
    assert found[: len(reads)] == reads
    at = list(acme.rows("shop.orders", at=ts))
    assert [(row["commit_ts"], row["key"]["id"], row["row"]["note"]) for row in reads] == [
        (row.commit_ts, int(row.key["id"]), row.row["note"]) for row in at
    ]
    assert {(row["start_ts"], row["old_row"]) for row in reads} == {(None, None)}
    later = [event.commit_ts for event in own if event.commit_ts > ts]
    assert [row["commit_ts"] for row in found[len(reads) :]] == later


def test_every_type_has_its_values(loaded: Consumer, acme: Tenant) -> None:
    table = acme.changes("types", "everything").to_arrow()["row"].combine_chunks()
    text = rows_of(plan_of(loaded, "types.everything", zeroDates="text"))
    typed = rows_of(plan_of(loaded, "types.everything", zeroDates="null"))
    kinds = {field.name: field.dataType.simpleString() for field in typed_schema(loaded)}
    assert {"date", "timestamp", "timestamp_ntz", "decimal(20,0)", "bigint", "double", "binary"} <= set(kinds.values())
    zeros = 0
    for name in [field.name for field in table.type]:
        for value, as_text, as_typed in zip(table.field(name).to_pylist(), text, typed, strict=True):
            if as_text["row"] is None:
                assert as_typed["row"] is None
                continue
            plain, shown = as_text["row"][name], as_typed["row"][name]
            if kinds[name] in ("date", "timestamp", "timestamp_ntz"):
                assert plain == value
                zero = value is not None and "-00" in value
                zeros += zero
                assert shown is None if zero or value is None else str(shown).startswith(value)
            elif kinds[name].startswith("decimal"):
                assert plain == shown
                assert (None if shown is None else f"{shown:f}") == (None if value is None else str(value))
            else:
                assert plain == shown == value
    assert zeros
    with pytest.raises(
        WrongArgument, match=r'zeroDates is "error", and column .* right: \.option\("zeroDates", "null"'
    ):
        rows_of(plan_of(loaded, "types.everything"))


def typed_schema(loaded: Consumer) -> Any:
    return plan_of(loaded, "types.everything").shape.spark()["row"].dataType


def test_older_rows_have_the_columns_of_the_end(loaded: Consumer, acme: Tenant) -> None:
    """shop.ddl1: `b` became `bb`, `c` became `cc`, `a` other types with the same name, `e` was added later."""
    own = events(acme, "shop.ddl1")
    plan = plan_of(loaded, "shop.ddl1", endingTs=str(own[-1].commit_ts))
    names = [column.name for column in plan.shape.columns]
    assert {"a", "bb", "cc", "e"} <= set(names)
    olds = {"bb": "b", "cc": "c"}
    assert len({tuple(event.row) for event in own if event.row}) > 4
    found = rows_of(plan)
    for row, event in zip(found, own, strict=True):
        for name in ("a", "bb", "cc"):
            there = event.row or {}
            old = there.get(name, there.get(olds.get(name, name)))
            now = (row["row"] or {}).get(name)
            assert (None if now is None else str(now)) == (None if old is None else str(old)), (name, event)


def test_a_column_that_is_added_while_a_stream_runs_ends_it(loaded: Consumer, acme: Tenant) -> None:
    ddl = next(one for one in acme.changes("shop", "old1", events="ddl") if "add column c1 " in one.query)
    begun = {"endingTs": str(ddl.commit_ts - 1)}
    part = ChangesPart(LOW, END)
    with pytest.raises(SchemaChanged, match=r"has the column 'c1' since before .* Start the query again"):
        rows_of(plan_of(loaded, "shop.old1", **begun), [part])
    found = rows_of(plan_of(loaded, "shop.old1", columns="id", **begun), [part])
    assert [row["commit_ts"] for row in found] == [event.commit_ts for event in events(acme, "shop.old1")]


class Query:
    """What Spark does with a stream: an offset is stored before its batch runs, and a batch may run again. The first
    batch runs also if it ends where the stream begins."""

    def __init__(self, loaded: Consumer, **options: str) -> None:
        self._of = lambda: EventStream(plan_of(loaded, "shop.orders", **options))
        self.reader = self._of()
        self.logged: list[Offset] = []

    def start(self) -> Offset:
        return self.logged[-1] if self.logged else self.reader.initialOffset()

    def run(self, times: int = 1) -> list[Row]:
        """The rows of the next batch, which is read by `times` processes, each after the death of the one before."""
        start = self.start()
        end = self.reader.latestOffset(start, ReadAllAvailable())
        if end == start and self.logged:
            return []
        end, found = json.loads(json.dumps(end)), []
        for _ in range(times):
            begin = self.logged[-1] if self.logged else self.reader.initialOffset()
            found.append([row for part in self.reader.partitions(begin, end) for row in self._rows(part)])
            self.reader = self._of()
        assert all(rows == found[0] for rows in found)
        self.logged.append(end)
        return found[0]

    def _rows(self, part: Any) -> list[Row]:
        return [row for batch in self.reader.read(part) for row in batch.to_pylist()]


def test_a_stream_that_dies_anywhere_has_each_change_once(loaded: Consumer, acme: Tenant) -> None:
    query, found = Query(loaded, maxBatchSpan="50ms", endingTs=str(END)), list[Row]()
    while rows := query.run(times=2):
        found += rows
    assert len(query.logged) > 2
    assert [(row["commit_ts"], row["op"]) for row in found] == [
        (event.commit_ts, event.op) for event in events(acme, "shop.orders")
    ]
    assert query.reader.partitions(query.logged[-1], query.logged[-1]) == []


def test_the_first_batch_of_a_stream_begins_where_its_offset_says(loaded: Consumer) -> None:
    """Else a query that is killed in its first batch, and begins at `10m` or `now`, would lose changes."""
    query = Query(loaded)
    end = query.reader.latestOffset(query.start(), ReadAllAvailable())
    late = EventStream(plan_of(loaded, "shop.orders", startingTs="now"))
    assert late.partitions(late.initialOffset(), end) == query.reader.partitions(query.start(), end)


def test_a_stream_that_dies_before_the_first_change_is_started_again(loaded: Consumer, acme: Tenant) -> None:
    """With `startingTs=now` each process begins elsewhere, and the stored offset counts."""
    own = events(acme, "shop.orders")
    first, half = own[0].commit_ts, own[len(own) // 2].commit_ts
    begun = Query(loaded, startingTs=str(first), endingTs=str(first))
    assert begun.run() == []
    (stored,) = begun.logged
    late = Query(loaded, startingTs=str(half), endingTs=str(END))
    assert late.reader.partitions(late.start(), stored) == []
    late.logged.append(stored)
    assert [row["commit_ts"] for row in late.run()] == [event.commit_ts for event in own if event.commit_ts > first]


def test_a_stream_begins_with_a_snapshot(loaded: Consumer, acme: Tenant) -> None:
    own = events(acme, "shop.orders")
    ts = own[len(own) // 2].commit_ts
    query = Query(loaded, snapshot=str(ts))
    reads, changes = query.run(times=2), query.run()
    assert [row["op"] for row in reads] == ["read"] * len(list(acme.rows("shop.orders", at=ts)))
    assert [row["commit_ts"] for row in changes] == [event.commit_ts for event in own if event.commit_ts > ts]


def test_available_now_ends_at_what_is_resolved(loaded: Consumer, acme: Tenant) -> None:
    query = Query(loaded, startingTs="now")
    query.reader.prepareForTriggerAvailableNow()
    assert query.run() == []
    query = Query(loaded, where="amount > 1e12")
    query.reader.prepareForTriggerAvailableNow()
    assert query.run() == []
    assert int(query.logged[-1]["to"]) >= END
    query = Query(loaded)
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.run()) == len(events(acme, "shop.orders"))
    query.reader.prepareForTriggerAvailableNow()
    assert query.reader.latestOffset(query.start(), ReadAllAvailable()) == query.start()


def test_what_cannot_be_read_is_refused(loaded: Consumer) -> None:
    with pytest.raises(WrongArgument, match=r'names \'Amont\', .* right: \.option\("columns", "amount"\)'):
        plan_of(loaded, "shop.orders", columns="id,Amont")


def micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.spark
def test_spark_names_a_wrong_option(session: SparkSession, loaded: Consumer) -> None:
    with pytest.raises(PySparkException, match=r'tabel is no option; .* right: \.option\("table", "shop.orders"\)'):
        session.read.format("tistream").options(**of(loaded, "shop.orders", tabel="x")).load()


@pytest.mark.spark
def test_the_block_of_the_page_runs(
    session: SparkSession, loaded: Consumer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs/clients.md").read_text()
    block = page.partition("## Spark")[2].partition("```python\n")[2].partition("\n```")[0]
    for name, value in (
        ("http://127.0.0.1:8000", loaded.url),
        ('"path", "orders"', f'"path", "{tmp_path}/orders"'),
        ('"checkpoint"', f'"{tmp_path}/checkpoint"'),
    ):
        assert name in block
        block = block.replace(name, value)
    exec(compile(block, "docs/clients.md", "exec"), {})
    assert "amount" in capsys.readouterr().out
    own = rows_of(plan_of(loaded, "shop.orders", snapshot="now"))
    written = session.read.parquet(f"{tmp_path}/orders")
    assert written.schema == plan_of(loaded, "shop.orders").shape.spark()
    columns = ("op", "commit_ts", "unix_millis(commit_time)", "key.id", "row.amount", "unix_micros(row.created)")
    assert sorted(tuple(row) for row in written.selectExpr(*columns).collect()) == sorted(
        (
            row["op"],
            row["commit_ts"],
            row["commit_ts"] >> 18,
            row["key"]["id"],
            row["row"]["amount"],
            micros(row["row"]["created"]),
        )
        for row in own
    )
