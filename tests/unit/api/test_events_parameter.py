"""`events=rows|ddl|all`: which events an answer has, and that format=arrow is never read as less than it is."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from support.arrow_answer import arrow_batches, events_of, parquet_events, stream_end
from support.pull_world import World, golden_world
from support.query import parse
from support.review_world import SNAPSHOT, change, review_world
from support.row_bytes import compact, row_v2
from support.schema_records import DONE, column, database, drop, job, table, table_info
from tistream.errors import InvalidRequest
from tistream.read.cursor import Position, Scope, decode
from tistream.read.scan import Budget
from tistream_api.request.params import PullParams
from tistream_api.request.queries import PullQuery, TablePullQuery

Event = dict[str, Any]


def parse_pull(query: bytes, *, one_table: bool) -> PullParams:
    return parse(TablePullQuery if one_table else PullQuery, query).parsed()


def ndjson(body: bytes) -> list[Event]:
    return [json.loads(line) for line in body.splitlines()]


def read_all(body: bytes) -> pa.Table:
    """What a user reads who has not read the page on the API; fails if anything of the body is left unread."""
    source = pa.BufferReader(body)
    found = pa.ipc.open_stream(source).read_all()
    assert source.tell() == len(body)
    return found


def rows_of(body: bytes) -> list[Event]:
    """The row events of an answer that is one stream."""
    told = [event for batch in arrow_batches(body) for _, event in events_of(batch)]
    assert len(told) == read_all(body).num_rows
    return told


@pytest.mark.parametrize("one_table", [True, False])
@pytest.mark.parametrize("more", [b"", b"&follow=true"])
def test_arrow_without_events_is_refused_with_the_choices(*, one_table: bool, more: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"events=rows.*events=ddl.*events=all") as error:
        parse_pull(b"start_ts=1&format=arrow" + more, one_table=one_table)
    assert error.value.extra["parameter"] == "events"


def test_what_events_may_be() -> None:
    assert parse_pull(b"start_ts=1", one_table=True).events == "all"
    assert parse_pull(b"start_ts=1&format=parquet", one_table=False).events == "all"
    for events in ("all", "rows", "ddl"):
        for form in ("ndjson", "parquet", "arrow"):
            query = f"start_ts=1&format={form}&events={events}".encode()
            assert parse_pull(query, one_table=True).events == events
    for wrong in (b"start_ts=1&events=row", b"start_ts=1&events=rows,ddl", b"start_ts=1&events=rows&events=ddl"):
        with pytest.raises(InvalidRequest, match="events"):
            parse_pull(wrong, one_table=True)


def test_rows_of_several_tables_are_not_one_arrow_stream() -> None:
    with pytest.raises(InvalidRequest, match="one table") as error:
        parse_pull(b"start_ts=1&format=arrow&events=rows", one_table=False)
    assert error.value.extra["parameter"] == "events"
    assert parse_pull(b"start_ts=1&format=arrow&events=ddl", one_table=False).events == "ddl"


PK = column(1, "id", flag=3)
V, W = column(2, "v"), column(3, "w")
BEFORE, AFTER = (table_info(100, "t", [PK, V], pk_is_handle=True), table_info(100, "t", [PK, V, W], pk_is_handle=True))


def altered(end_ts: int = 100) -> World:
    """Table d.t with rows at 20 and 30, a column more at 40, and rows at 50 and 60."""
    rows = [change(ts, 100, ts, row_v2({2: compact(ts)})) for ts in (20, 30)]
    rows += [change(ts, 100, ts, row_v2({2: compact(ts), 3: compact(ts)})) for ts in (50, 60)]
    done = job(40, 7, 5, DONE, table_id=100, table_name="t", schema_name="d", query="alter table t add column w int")
    return review_world([database(10, 1, "d"), table(10, 1, BEFORE), table(40, 1, AFTER), done], rows, end_ts=end_ts)


def pages(one: World, *names: str, events: str, form: str, limit: int = 1_000_000) -> list[bytes]:
    """Page after page from the beginning, until one that ends at the world's end."""
    at, found = Position(one.snapshot_ts), []
    while at < Position(one.end_ts):
        found.append(one.pull(*names, start=at, form=form, events=events, limit=limit))
        last = decode(Scope(one.tenant, *names), stream_end(found[-1], form)["cursor"])
        assert last > at, "a page stands still"
        at = last
    return found


def test_a_page_ends_before_the_schema_changes_and_the_next_one_begins_there() -> None:
    first, second = pages(altered(), "d", "t", events="rows", form="arrow")
    assert read_all(first).column("commit_ts").to_pylist() == [20, 30]
    assert read_all(second).column("commit_ts").to_pylist() == [50, 60]
    assert [field.name for field in read_all(first).schema.field("row").type] == ["id", "v"]
    assert [field.name for field in read_all(second).schema.field("row").type] == ["id", "v", "w"]
    assert (stream_end(first, "arrow")["type"], stream_end(first, "arrow")["resolved_ts"]) == ("resolved", "49")


def test_a_page_without_rows_has_the_schema_in_force_and_tells_how_far_it_came() -> None:
    one = altered()
    body = one.pull("d", "t", start=Position(60), form="arrow", events="rows")
    assert read_all(body).num_rows == 0
    assert read_all(body).schema.equals(
        read_all(one.pull("d", "t", start=Position(40), form="arrow", events="rows")).schema, check_metadata=True
    )
    end = stream_end(body, "arrow")
    assert (end["type"], end["resolved_ts"]) == ("resolved", "100")
    assert decode(Scope(one.tenant, "d", "t"), end["cursor"]) == Position(100)


def test_a_name_that_nothing_bears_any_more_is_an_empty_stream() -> None:
    one = review_world([database(10, 1, "d"), table(10, 1, BEFORE), drop(40, 1, 100)], end_ts=100)
    body = one.pull("d", "t", start=Position(SNAPSHOT), form="arrow", events="rows")
    found = read_all(body)
    assert (found.num_rows, found.schema.metadata[b"tistream.table"]) == (0, b"t")
    assert stream_end(body, "arrow")["resolved_ts"] == "100"


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything", tasks=3, budget=Budget(3_000, 500, 1 << 20, 3_000))


@pytest.mark.parametrize("limit", [7, 1_000_000])
def test_every_row_of_a_table_comes_once_in_streams_of_one_schema(world: World, limit: int) -> None:
    every = [event for event in ndjson(world.pull(start=Position(world.snapshot_ts))) if event["type"] == "row"]
    names = {(event["database"], event["table"]) for event in every}
    tables = sorted(names) if limit > 7 else [("shop", "busy")]
    for scope in tables:
        wanted = [event for event in every if (event["database"], event["table"]) == scope]
        found = pages(world, *scope, events="rows", form="arrow", limit=limit)
        assert [event for body in found for event in rows_of(body)] == wanted


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
@pytest.mark.parametrize("kind", ["rows", "ddl"])
@pytest.mark.parametrize("limit", [5_000])
def test_other_formats_leave_out_the_same(world: World, form: str, kind: str, limit: int) -> None:
    read = parquet_events if form == "parquet" else ndjson
    every = ndjson(world.pull(start=Position(world.snapshot_ts)))
    wanted = [event for event in every if event["type"] == kind.removesuffix("s")]
    found = [read(body) for body in pages(world, events=kind, form=form, limit=limit)]
    assert [event for page in found for event in page[:-1]] == wanted
    assert all(len(page) <= limit + 1 for page in found)


def test_ddl_events_of_a_tenant_are_one_stream(world: World) -> None:
    every = ndjson(world.pull(start=Position(world.snapshot_ts)))
    (body,) = pages(world, events="ddl", form="arrow")
    assert rows_of(body) == [event for event in every if event["type"] == "ddl"]
    small = pages(world, events="ddl", form="arrow", limit=3)
    assert [event for one in small for event in rows_of(one)] == rows_of(body)
    (empty,) = pages(review_world([database(10, 1, "d")]), events="ddl", form="arrow")
    assert read_all(empty).schema == read_all(body).schema
    assert read_all(empty).num_rows == 0


def test_ddl_events_alone_read_no_rows() -> None:
    one = golden_world("everything", tasks=1)
    for info in list(one.objects.list_after("committed")):
        one.objects.delete(info.key)
    assert len(ndjson(one.pull(start=Position(one.snapshot_ts), events="ddl"))) > 10


def test_a_cursor_goes_on_whatever_events_is_asked_next(world: World) -> None:
    scope = Scope(world.tenant, "shop", "busy")
    every = ndjson(world.pull("shop", "busy", start=Position(world.snapshot_ts)))[:-1]
    body = world.pull("shop", "busy", start=Position(world.snapshot_ts), form="arrow", events="rows", limit=17)
    end = stream_end(body, "arrow")
    rest = ndjson(world.pull("shop", "busy", start=decode(scope, end["cursor"])))[:-1]
    assert [*rows_of(body), *rest] == [event for event in every if event["type"] == "row" or event in rest]
    assert [event for event in every if int(event["commit_ts"]) > int(end["resolved_ts"])] == rest


def test_an_endless_stream_has_one_schema_and_ends_before_it_changes() -> None:
    one = altered()
    body = one.follow("d", "t", start=Position(SNAPSHOT), form="arrow", events="rows")
    assert read_all(body).column("commit_ts").to_pylist() == [20, 30]
    assert stream_end(body, "arrow")["resolved_ts"] == "49"


def test_ends_of_a_stream_are_batches_without_rows() -> None:
    body = altered().pull("d", "t", start=Position(SNAPSHOT), form="arrow", events="rows")
    with pa.ipc.open_stream(body) as stream:
        batches = list(stream.iter_batches_with_custom_metadata())
    assert [batch.batch.num_rows for batch in batches][-1] == 0
    told = [batch.custom_metadata is not None for batch in batches]
    assert told == [False] * (len(told) - 1) + [True]
    assert all(before <= after for before, after in pairwise(told))
