"""The client beside a platform: events, Arrow, DataFrames, rows, checkpoints; answers that are cut off, and limits."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from support import golden, plain_http
from support.access_world import Issuer, start_guarded
from support.ahead_clock import STANDING, AheadClock
from support.api_world import Platform
from support.certificates import Authority
from support.cutting_proxy import cutting
from support.feed_lake import HastyClock, LakeRun, plain, resolved, run_to_end, value_of
from support.http_world import Server, never_superseded
from support.not_run import not_run
from support.platform import free_port
from support.pull import Consumer
from support.pull_world import golden_world
from tistream_api.app import build_app
from tistream_api.settings import ApiSettings, LimitSettings
from tistream_client import (
    AsyncTiStream,
    BadRequest,
    CheckpointMoved,
    Event,
    FileCheckpoint,
    Forbidden,
    Gone,
    NoAnswer,
    Page,
    RowEvent,
    SchemaChanged,
    SqlCheckpoint,
    Table,
    Tenant,
    TiStream,
    Unauthenticated,
    UnknownName,
    WrongArgument,
    to_ts,
)

EVERYTHING = golden.load("everything")
ROOT = Path(__file__).parents[3]
Line = dict[str, Any]


@pytest.fixture(scope="module")
def lines(loaded: Consumer) -> list[Line]:
    """Every event, as the API shows it."""
    found = loaded.pull(until_ts=EVERYTHING.end_ts, start_ts=EVERYTHING.snapshot_ts, limit=100_000)
    return [line for line in found if line["type"] in ("row", "ddl")]


@pytest.fixture
def orders(acme: Tenant) -> Any:
    return acme.table("shop", "orders")


def line_of(event: Event) -> Line:
    """An event as NDJSON shows it."""
    shown: Line = {"type": "row" if isinstance(event, RowEvent) else "ddl"}
    for name in event.__slots__:
        value = getattr(event, name)
        shown[name] = str(value) if isinstance(value, int) else value
    if not isinstance(event, RowEvent):
        shown["involved"] = [{"database": database, "table": table} for database, table in event.involved]
    return shown


def of_table(lines: list[Line], table: str) -> list[Line]:
    return [line for line in lines if line["type"] == "row" and line["table"] == table]


async def first(events: AsyncIterator[Event], count: int) -> list[Event]:
    found: list[Event] = []
    async for event in events:
        found.append(event)
        if len(found) == count:
            break
    return found


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


def test_events_are_those_of_the_api(acme: Tenant, lines: list[Line]) -> None:
    changes = acme.changes(since=EVERYTHING.snapshot_ts, until=EVERYTHING.end_ts)
    assert [line_of(event) for event in changes] == lines
    pages = list(acme.changes("shop", page_size=400).pages())
    shop = [
        line for line in lines if "shop" in (line["database"], *(one["database"] for one in line.get("involved", [])))
    ]
    assert [line_of(one) for page in pages for one in page.events] == shop
    assert max(len(page.events) for page in pages) <= 400
    assert pages[-1].resolved_time is not None


def test_a_pull_ends_and_its_cursor_continues(orders: Table, lines: list[Line]) -> None:
    own = of_table(lines, "orders")
    half = int(own[len(own) // 2]["commit_ts"])
    *_, page = orders.changes(until=half).pages()
    assert page.resolved_ts == half
    rest = list(orders.changes(cursor=page.cursor, events="rows"))
    assert [line_of(event) for event in rest] == [line for line in own if int(line["commit_ts"]) > half]
    assert list(orders.changes(cursor=page.cursor, until=half - 1)) == []


def test_following_through_cut_answers_gives_each_event_once_and_in_order(loaded: Consumer, lines: list[Line]) -> None:
    own = lines[:3_000]
    with cutting(int(loaded.url.rsplit(":", 1)[1]), seed=1) as proxy:
        client = TiStream(proxy.url, sleep=lambda _: None)
        followed = client.tenant("7", "acme").changes(page_size=150).follow()
        assert [line_of(event) for event in islice(followed, len(own))] == own
        assert (before := proxy.cuts) > 5

        async def follow() -> list[Event]:
            async with AsyncTiStream(proxy.url, sleep=no_sleep) as client:
                return await first(client.tenant("7", "acme").changes(page_size=150).follow(), len(own))

        assert [line_of(event) for event in asyncio.run(follow())] == own
        assert proxy.cuts > before + 5


def test_arrow_and_rows_through_cut_answers_are_whole(loaded: Consumer, orders: Table) -> None:
    with cutting(int(loaded.url.rsplit(":", 1)[1]), seed=2) as proxy:
        client = TiStream(proxy.url, sleep=lambda _: None, retry_for=None)
        table = client.tenant("7", "acme").table("shop", "orders")
        assert table.changes(page_size=20).to_polars().equals(orders.changes().to_polars())
        assert (
            table.rows(at=EVERYTHING.end_ts, page_size=9).to_polars().equals(orders.at(EVERYTHING.end_ts).to_polars())
        )
        assert proxy.cuts > 2


def test_a_limit_of_requests_is_waited_for(up: Platform, loaded: Consumer, lines: list[Line]) -> None:
    clock, port = AheadClock(STANDING), free_port()
    settings = ApiSettings(
        port=port, node_id=f"api-{port}", meta_url=up.world.meta.url, limits=LimitSettings(requests_per_second=1)
    )
    limited = Server(build_app(settings, up.world.objects, clock, end=never_superseded), port)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(int(seconds * 1_000))

    try:
        client = TiStream(limited.url, sleep=wait, retry_for=None)
        found = client.tenant("7", "acme").changes("shop", "orders", events="rows", page_size=30)
        assert [line_of(event) for event in found] == of_table(lines, "orders")
        assert len(waits) > 2
    finally:
        limited.stop()


def test_a_token_that_was_replaced_is_used_and_what_it_does_not_grant_is_refused(
    up: Platform, loaded: Consumer, orders: Table, tmp_path: Path
) -> None:
    issuer = Issuer(tmp_path / "keys.json")
    guarded, token = start_guarded(up, issuer, up.world.objects), tmp_path / "token"  # type: ignore[arg-type]
    where = {"cluster": "7", "tenant": "acme", "database": "shop", "table": "orders"}
    try:
        token.write_text(issuer.sign([{"actions": ["read"], **where}], exp=1) + "\n")
        with TiStream(guarded.url, token_file=token, retry_for=None) as client:
            acme = client.tenant("7", "acme")
            with pytest.raises(Unauthenticated, match="token_file="):
                acme.databases()
            token.write_text(issuer.sign([{"actions": ["read"], **where}]) + "\n")
            own = acme.table("shop", "orders").changes(columns=["id"], events="rows")
            assert list(own) == list(orders.changes(columns=["id"], events="rows"))
            with pytest.raises(Forbidden, match="tistream token create --grant"):
                list(acme.changes("shop"))
        with pytest.raises(Unauthenticated):
            TiStream(guarded.url).tenant("7", "acme").databases()
    finally:
        guarded.stop()


def test_tls_with_certificates_of_both_sides(loaded: Consumer, orders: Table, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    server, own = authority.sign("server"), authority.sign("client")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    tls.load_cert_chain(server.cert_file, server.key_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    certificates = {"ca_file": authority.file, "cert_file": own.cert_file, "key_file": own.key_file}
    with cutting(int(loaded.url.rsplit(":", 1)[1]), seed=3, tls=tls) as proxy:
        client = TiStream(proxy.url, sleep=lambda _: None, retry_for=None, **certificates)  # type: ignore[arg-type]
        events = client.tenant("7", "acme").changes("shop", "orders", page_size=20)
        assert list(events) == list(orders.changes())
        assert proxy.cuts
        with pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED"):
            TiStream(proxy.url).tenant("7", "acme").databases()


def test_batches_are_the_row_events(orders: Table, lines: list[Line]) -> None:
    own = of_table(lines, "orders")
    table = orders.changes().to_arrow()
    assert table.column_names == [
        "op", "commit_ts", "commit_time", "start_ts", "schema_version", "key", "row", "old_row",
    ]  # fmt: skip
    assert [str(ts) for ts in table["commit_ts"].to_pylist()] == [line["commit_ts"] for line in own]
    assert [key["id"] for key in table["key"].to_pylist()] == [int(line["key"]["id"]) for line in own]
    assert table["op"].to_pylist() == [line["op"] for line in own]
    for side in ("row", "old_row"):
        shown = [line[side] and {**line[side], "id": int(line[side]["id"])} for line in own]
        assert table[side].to_pylist() == shown
    times = table["commit_time"].to_pylist()
    assert [to_ts(time) for time in times] == [int(line["commit_ts"]) >> 18 << 18 for line in own]


def test_chosen_columns_of_arrow(orders: Table) -> None:
    whole = orders.changes().to_arrow()
    some = orders.changes(columns=["amount", "id"]).to_arrow()
    expected = [row and {"amount": row["amount"], "id": row["id"]} for row in whole["old_row"].to_pylist()]
    assert some["old_row"].to_pylist() == expected
    assert [field.name for field in some.schema.field("row").type] == ["amount", "id"]
    [event] = islice(orders.changes(columns=["note", "id"], events="rows"), 1)
    assert isinstance(event, RowEvent)
    assert list(event.row or {}) == ["note", "id"]


def test_columns_that_came_and_went_are_those_of_each_row_whoever_drops_the_others(
    acme: Tenant, lines: list[Line]
) -> None:
    """The server sends the chosen columns alone; where it refuses names, the client drops the others."""
    checked = 0
    for full, table in changed_tables(acme, lines).items():
        own = acme.table(full)
        try:
            names = list(next(iter(own.rows())).row)
        except (UnknownName, StopIteration):
            continue
        whole = [event for event in own.changes(events="rows") if isinstance(event, RowEvent)]
        first = whole[0].commit_ts  # a column that was added later is none of the table's columns up to it
        for column, until in ((names[-1], None), (names[-1], first), (names[0], None)):
            chosen = own.changes(events="rows", columns=[column], until=until, page_size=3)
            assert [(one.commit_ts, one.key, one.row, one.old_row) for one in chosen if isinstance(one, RowEvent)] == [
                (one.commit_ts, one.key, kept(one.row, column), kept(one.old_row, column))
                for one in whole
                if until is None or one.commit_ts <= until
            ]
            checked += 1
            if isinstance(table, pa.Table):
                rows = own.changes(columns=[column], until=until).to_arrow()["row"].to_pylist()
                wanted = table["row"].to_pylist()[: len(rows)]
                assert [(row or {}).get(column) for row in rows] == [(row or {}).get(column) for row in wanted]
    assert checked


def kept(row: Any, column: str) -> Any:
    return row and {name: value for name, value in row.items() if name == column}


def test_a_column_that_a_table_does_not_have_is_named_beside_a_near_one(acme: Tenant, orders: Table) -> None:
    for read in (orders.changes(columns=["id", "Amont"]).to_arrow, orders.changes(columns=["Amont"]).pages().__next__):
        with pytest.raises(WrongArgument) as refused:
            read()
        assert str(refused.value) == (
            "columns names 'Amont', and 7/acme shop.orders has id, customer, amount, note, created; "
            'right: columns=["amount"]'
        )
    with pytest.raises(BadRequest, match="columns"):
        orders.rows(columns=["Amont"]).to_arrow()
    assert list(acme.changes("shop", "gone", columns=["any"], events="ddl"))


def test_the_server_filters_changes_and_rows(acme: Tenant, orders: Table, lines: list[Line]) -> None:
    def fulfils(line: Line) -> bool:
        return any(row is not None and float(row["amount"] or 0) > 10 for row in (line["row"], line["old_row"]))

    of: Any = {"where": "amount > 10", "operations": ["update", "delete"]}
    changed = [line for line in of_table(lines, "orders") if line["op"] == "delete" or line["old_row"] is not None]
    expected = [line for line in changed if fulfils(line)]
    assert 0 < len(expected) < len(changed)
    found = orders.changes(events="rows", page_size=7, **of)
    assert [line_of(event) for event in found] == expected
    assert orders.changes(**of).to_arrow().num_rows == len(expected)
    rules = acme.changes(tables=["shop.k_*", "!shop.k_un*"], events="rows")
    assert {event.table for event in rules if isinstance(event, RowEvent)} == {
        line["table"] for line in lines if line["type"] == "row" and line["table"].startswith("k_")
    }
    rows = list(orders.rows(where="amount > 10 and id < 30", page_size=2))
    assert [row.row for row in rows] == [
        row.row for row in orders.rows() if float((row.row or {})["amount"] or 0) > 10 and int(row.key["id"]) < 30
    ]
    assert rows
    for wrong in (orders.changes(where="amout > 1"), orders.rows(where="amout > 1")):
        with pytest.raises(BadRequest, match=r"no column 'amout' \(did you mean amount\?\)") as refused:
            list(wrong)
        assert refused.value.parameter == "where"
    with pytest.raises(UnknownName, match=r"there is no table shop.ordrs .*\(did you mean orders\?\)"):
        list(acme.changes("shop", "ordrs", since=EVERYTHING.snapshot_ts))
    with pytest.raises(UnknownName, match=r"there is no table shop.ordrs .*\(did you mean orders\?\)"):
        list(acme.rows("shop", "ordrs"))


def test_readers_of_arrow_take_a_read_as_it_is(orders: Table) -> None:
    changes, rows = orders.changes(columns=["id", "amount"]), orders.at("now")
    newest = changes.to_polars()["commit_ts"].max()
    counted = duckdb.sql("SELECT count(*), epoch_ms(max(commit_time)) FROM changes").fetchall()
    assert counted == [(changes.to_arrow().num_rows, int(newest) >> 18)]
    reader = rows.reader()  # noqa: F841 - DuckDB finds it by its name
    assert duckdb.sql("SELECT id, note FROM reader ORDER BY id").pl().equals(rows.to_polars()["id", "note"])
    assert pl.DataFrame(rows).equals(rows.to_polars())
    assert pa.table(rows).equals(rows.to_arrow())


def changed_tables(acme: Tenant, lines: list[Line]) -> dict[str, pa.Table | SchemaChanged]:
    """What to_arrow gives for each table whose rows have different columns over time."""
    shapes: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for line in lines:
        if line["type"] == "row" and line["row"]:
            shapes.setdefault((line["database"], line["table"]), set()).add(tuple(line["row"]))
    found: dict[str, pa.Table | SchemaChanged] = {}
    for (database, table), shape in shapes.items():
        if len(shape) > 1 and len(found) < 5:
            try:
                found[f"{database}.{table}"] = acme.changes(database, table).to_arrow()
            except SchemaChanged as error:
                found[f"{database}.{table}"] = error
    return found


def test_columns_that_come_and_go_are_null_where_they_did_not_exist(acme: Tenant, lines: list[Line]) -> None:
    tables = changed_tables(acme, lines)
    assert tables
    united = {name: table for name, table in tables.items() if isinstance(table, pa.Table)}
    assert united
    for name, table in united.items():
        database, _, short = name.partition(".")
        own = [
            line for line in lines if line["type"] == "row" and (line["database"], line["table"]) == (database, short)
        ]
        for line, row in zip(own, table["row"].to_pylist(), strict=True):
            assert (line["row"] is None) == (row is None)
            assert line["row"] is None or {name for name, value in row.items() if value is not None} == {
                name for name, value in line["row"].items() if value is not None
            }
        with pytest.raises(SchemaChanged, match=r"Read the parts with until= and since="):
            acme.changes(database, short).reader().read_all()


def test_rows_are_the_table_as_of_a_time(loaded: Consumer, orders: Table) -> None:
    raw = loaded.client.get(f"{loaded.base}/databases/shop/tables/orders/rows?ts={EVERYTHING.end_ts}").text
    shown = [line for line in map(golden.json.loads, raw.splitlines()) if line["type"] == "row"]
    rows = list(orders.at(EVERYTHING.end_ts))
    assert [(dict(row.key), dict(row.row), str(row.commit_ts)) for row in rows] == [
        (line["key"], line["row"], line["commit_ts"]) for line in shown
    ]
    frame = orders.at("now").to_polars()
    assert frame.columns == list(shown[0]["row"])
    assert frame["id"].to_list() == [int(line["row"]["id"]) for line in shown]
    assert orders.rows(key={"id": 30}, columns=["note"]).to_arrow().to_pylist() == [{"note": "async"}]
    ids = [row.row["id"] for row in orders.rows(from_key={"id": 3}, to_key={"id": 6}, page_size=1)]
    assert ids == ["3", "4", "5"]
    [(_, ts)] = orders.at("now").pages()
    assert list(orders.changes(since=ts)) == []


async def read_over(url: str, lake: Any, ts: int) -> tuple[Any, list[str]]:
    """The rows of shop.orders over an Iceberg table, in asyncio: as of a ts, and a column of the newest ones."""
    async with AsyncTiStream(url) as client:
        orders = client.tenant("7", "acme").table("shop.orders")
        with pytest.raises(WrongArgument, match="beside a key or a condition"):
            orders.rows(where="id > 1").over(lake)
        some = await orders.rows(columns=["customer"]).over(lake).to_polars()
        return shown_rows(await orders.at(ts).over(lake).to_arrow()), sorted(some["customer"])


def test_a_table_at_any_ts_is_a_snapshot_of_iceberg_and_the_changes_after_it(
    loaded: Consumer, acme: Tenant, tmp_path: Path
) -> None:
    world = golden_world("everything")
    run = LakeRun(
        world, tmp_path, "both", ["shop.orders", "types.everything"], "flush-interval=100ms", clock=HastyClock()
    )
    run_to_end(run.holder())
    for database, name in (("shop", "orders"), ("types", "everything")):
        table, lake = acme.table(database, name), run.table(f"{database}.{name}")
        stamps = sorted({event.commit_ts for event in table.changes(events="rows")})
        held = sorted(ts for _, ts in resolved(lake))
        assert len(held) > 2
        for ts in {*stamps[:: 1 + len(stamps) // 3], *(ts + 1 for ts in held[:: 1 + len(held) // 2]), world.end_ts}:
            found = table.at(ts).over(lake).to_arrow()
            assert found.schema.metadata[b"tistream.ts"] == str(ts).encode()
            kinds = {one.name: one.field_type for one in lake.schema().fields if one.name in found.column_names}
            wanted = table.at(ts).to_arrow().select(list(kinds)).to_pylist()
            assert Counter(tuple(plain(row[name]) for name in kinds) for row in found.to_pylist()) == Counter(
                tuple(value_of(kind, row[name]) for name, kind in kinds.items()) for row in wanted
            )
    orders, lake = acme.table("shop.orders"), run.table("shop.orders")
    assert asyncio.run(read_over(loaded.url, lake, world.end_ts)) == (
        shown_rows(orders.at(world.end_ts).over(lake).to_arrow()),
        sorted(orders.rows(columns=["customer"]).over(lake).to_polars()["customer"]),
    )
    newest = orders.rows(columns=["customer"]).over(lake).to_polars()
    assert sorted(newest["customer"]) == sorted(orders.rows(columns=["customer"]).to_polars()["customer"])
    with pytest.raises(BadRequest, match="did you mean amount"):
        orders.rows(columns=["Amont"]).over(lake).to_arrow()
    with pytest.raises(WrongArgument, match="has the changes of the table"):
        orders.at("now").over(run.table("shop.orders__changes"))
    with pytest.raises(WrongArgument, match=r"has the rows of types\.everything"):
        orders.at("now").over(run.table("types.everything"))
    with run.table("types.everything").transaction() as quiet:  # its newest rows are below retention
        quiet.update_snapshot(snapshot_properties={"tistream.resolved_ts": "1"}).fast_append().commit()
    lake = run.table("types.everything")
    kept = acme.table("types.everything").at("now").over(lake).to_arrow()
    assert shown_rows(kept) == shown_rows(lake.scan().to_arrow().select(kept.column_names))


def shown_rows(table: pa.Table) -> tuple[list[tuple[str, pa.DataType]], Counter[Any]]:
    """The names and types of a table, and its rows."""
    rows = Counter(tuple(plain(value) for value in row.values()) for row in table.to_pylist())
    return [(one.name, one.type) for one in table.schema], rows


def shown(answer: str) -> list[Line]:
    return [json.loads(line) for line in answer.splitlines()]


def test_reads_at_points_in_time_are_those_of_the_api(loaded: Consumer, acme: Tenant, lines: list[Line]) -> None:
    def answer(path: str) -> list[Line]:
        return shown(plain_http.get(f"{loaded.url}/v1/clusters/7/tenants/acme/{path}").text)

    own = of_table(lines, "orders")
    low, high = int(own[len(own) // 3]["commit_ts"]), EVERYTHING.end_ts
    last = own[-1]
    versions = list(acme.history("shop.orders", key=last["key"], until=high))
    told = [line for line in reversed(own) if line["key"] == last["key"]]
    assert [(one.commit_ts, one.op, one.row, one.old_row) for one in versions] == [
        (int(line["commit_ts"]), line["op"], line["row"], line["old_row"]) for line in told
    ]
    found = acme.transaction(int(last["start_ts"]))
    *events, end = answer(f"transactions/{last['start_ts']}")
    assert [line_of(event) for event in found.events] == events
    assert str(found.commit_ts) == end["commit_ts"]
    *events, _ = answer(f"databases/shop/tables/orders/diff?from={low}&to={high}")
    assert [line_of(event) for event in acme.diff("shop", "orders", since=low, until=high, page_size=7)] == events
    *events, _ = answer(f"databases/shop/changes?squash=true&start_ts={low}&end_ts={high}&limit=100000")
    pages = list(acme.squashed("shop", since=low, until=high, page_size=50))
    assert len(pages) > 2
    assert [line_of(event) for page in pages for event in page.events] == events


def test_a_snapshot_is_the_rows_and_its_cursor_goes_on_behind_them(acme: Tenant, lines: list[Line]) -> None:
    own = of_table(lines, "orders")
    at = int(own[len(own) // 2]["commit_ts"])
    pages = list(acme.snapshot("shop", "orders", at=at, page_size=10))
    rows = list(acme.rows("shop", "orders", at=at))
    assert len(pages) > 2
    read = [event for page in pages for event in page.events if isinstance(event, RowEvent)]
    assert [(one.key, one.row, one.op) for one in read] == [(row.key, row.row, "read") for row in rows]
    resumed = acme.snapshot("shop", "orders", cursor=pages[0].cursor, page_size=1_000)
    assert [event for page in resumed for event in page.events] == read[len(pages[0].events) :]
    behind = acme.changes("shop", "orders", cursor=pages[-1].cursor, events="rows", until=EVERYTHING.end_ts)
    assert [line_of(event) for event in behind] == [line for line in own if int(line["commit_ts"]) > at]


def test_asyncio_reads_points_in_time_alike(loaded: Consumer, acme: Tenant, lines: list[Line]) -> None:
    last = of_table(lines, "orders")[-1]
    low, high = EVERYTHING.snapshot_ts, EVERYTHING.end_ts

    async def read() -> list[object]:
        async with AsyncTiStream(loaded.url, sleep=no_sleep) as client:
            tenant = client.tenant("7", "acme")
            return [
                [one async for one in tenant.history("shop.orders", key=last["key"], until=high)],
                await tenant.transaction(int(last["start_ts"])),
                [one async for one in tenant.diff("shop", "orders", since=low, until=high)],
                [one async for one in tenant.squashed("shop", "orders", since=low, until=high)],
                [one async for one in tenant.snapshot("shop", "orders", at=high)],
            ]

    assert asyncio.run(read()) == [
        list(acme.history("shop.orders", key=last["key"], until=high)),
        acme.transaction(int(last["start_ts"])),
        list(acme.diff("shop", "orders", since=low, until=high)),
        list(acme.squashed("shop", "orders", since=low, until=high)),
        list(acme.snapshot("shop", "orders", at=high)),
    ]


def test_lists_and_status(acme: Tenant) -> None:
    assert "shop" in acme.databases()
    assert acme.databases(at=EVERYTHING.snapshot_ts + 1) != acme.databases()
    [orders] = [table for table in acme.tables("shop") if table.name == "orders"]
    assert orders.table_id == 156
    assert acme.status().resolved_ts >= EVERYTHING.end_ts


def test_refusals_of_the_server_are_exceptions(acme: Tenant, orders: Table) -> None:
    with pytest.raises(UnknownName, match=r"tenant\.databases\(\)"):
        list(acme.changes("shop", "ordres"))
    with pytest.raises(Gone) as gone:
        list(orders.changes(since=EVERYTHING.snapshot_ts - 1))
    assert gone.value.earliest_ts == EVERYTHING.snapshot_ts
    with pytest.raises(BadRequest, match="cursor") as refused:
        list(orders.changes(cursor="abc"))
    assert refused.value.parameter == "cursor"
    assert refused.value.cause_id
    [page] = orders.changes().pages()
    with pytest.raises(BadRequest, match="belongs to another call"):
        list(acme.changes(cursor=page.cursor))
    with pytest.raises(NoAnswer, match="Is the URL right"):
        TiStream("http://127.0.0.1:9").tenant(7, "acme").databases()


def test_asyncio_has_the_same_answers(loaded: Consumer, acme: Tenant, orders: Table) -> None:
    async def read() -> tuple[Any, ...]:
        async with AsyncTiStream(loaded.url) as client:
            tenant = client.tenant("7", "acme")
            table = tenant.table("shop.orders")
            return (
                [event async for event in table.changes()],
                await table.changes(columns=["id"]).to_polars(flat=True),
                [row async for row in table.at(EVERYTHING.end_ts)],
                await table.at("now").to_arrow(),
                await tenant.databases(),
                await tenant.tables("shop"),
                [batch async for batch in table.changes().batches()],
            )

    events, flat, rows, table, databases, tables, batches = asyncio.run(read())
    assert events == list(orders.changes())
    assert flat.equals(orders.changes(columns=["id"]).to_polars(flat=True))
    assert rows == list(orders.at(EVERYTHING.end_ts))
    assert table.equals(orders.at("now").to_arrow())
    assert (databases, tables) == (acme.databases(), acme.tables("shop"))
    assert batches == list(orders.changes().batches())


def test_a_file_continues_a_consumer_that_was_stopped(orders: Table, lines: list[Line], tmp_path: Path) -> None:
    checkpoint, own = FileCheckpoint(tmp_path / "cursor"), of_table(lines, "orders")
    pages = list(orders.changes(events="rows", page_size=20).pages())
    done: list[Event] = []
    for page in pages[:-1]:
        # The process ends inside the next page, whose events come again.
        events = list(islice(orders.changes(events="rows", page_size=20).follow(checkpoint), len(page.events) + 1))
        assert events[: len(page.events)] == page.events
        assert checkpoint.load() == page.cursor
        done += page.events
    done += islice(orders.changes(events="rows").follow(checkpoint), len(pages[-1].events))
    assert [line_of(event) for event in done] == own
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


@pytest.fixture(params=["sqlite", "mariadb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A consumer's own database."""
    url = f"sqlite:///{tmp_path}/copy.db" if request.param == "sqlite" else request.getfixturevalue("mysql_url")
    made = create_engine(url)
    yield made
    made.dispose()


def test_a_copy_in_a_database_is_exact_though_its_writer_dies_anywhere(orders: Table, engine: Engine) -> None:
    checkpoint = SqlCheckpoint("copy")
    with engine.begin() as connection:
        checkpoint.create(connection)
        checkpoint.create(connection)
        connection.execute(text("CREATE TABLE copy (id BIGINT PRIMARY KEY, amount TEXT, times INT)"))
    rng, deaths = random.Random(4), 0

    class Died(Exception):
        """The process ends here."""

    def copy(page: Page) -> None:
        with engine.begin() as connection:
            for event in page.events:
                assert isinstance(event, RowEvent)
                if rng.random() < 0.03:
                    raise Died
                was = connection.execute(text("SELECT times FROM copy WHERE id = :id"), dict(event.key)).scalar() or 0
                connection.execute(text("DELETE FROM copy WHERE id = :id"), dict(event.key))
                if event.row is not None:
                    row = {"id": event.row["id"], "amount": event.row["amount"], "times": was + 1}
                    connection.execute(text("INSERT INTO copy VALUES (:id, :amount, :times)"), row)
            checkpoint.on(connection).save(page)
        if rng.random() < 0.1:
            raise Died

    while True:
        with engine.begin() as connection:
            cursor = checkpoint.on(connection).load()
        try:
            for page in orders.changes(events="rows", cursor=cursor, page_size=11).pages():
                copy(page)
            break
        except Died:
            deaths += 1
    assert deaths > 3
    times: dict[str, int] = {}
    for event in orders.changes(events="rows"):
        assert isinstance(event, RowEvent)
        times[event.key["id"]] = 0 if event.row is None else times.get(event.key["id"], 0) + 1
    with engine.begin() as connection:
        copied = connection.execute(text("SELECT id, amount, times FROM copy ORDER BY id")).fetchall()
    assert [(str(id_), amount) for id_, amount, _ in copied] == [
        (row.row["id"], row.row["amount"]) for row in orders.at("now")
    ]
    assert {str(id_): count for id_, _, count in copied} == {id_: count for id_, count in times.items() if count}


def test_two_consumers_of_one_name_do_not_both_write(orders: Table, engine: Engine) -> None:
    checkpoint = SqlCheckpoint("copy")
    with Session(engine) as session, session.begin():
        checkpoint.create(session)
    one, two, *_ = orders.changes(page_size=20).pages()
    with Session(engine) as session, session.begin():
        checkpoint.on(session).save(one)
    for page in (one, Page(cursor="c", resolved_ts=1, after="other", events=[])):
        with engine.connect() as connection, pytest.raises(CheckpointMoved, match=r"the cursor of 'copy'"):
            checkpoint.on(connection).save(page)
    with engine.begin() as connection:
        checkpoint.on(connection).save(two)
        assert checkpoint.on(connection).load() == two.cursor
        assert SqlCheckpoint("COPY").on(connection).load() is None
    with engine.connect() as connection, pytest.raises((OperationalError, ProgrammingError)):
        SqlCheckpoint("copy", table="not_created").on(connection).load()


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, in order."""
    text_ = (ROOT / page).read_text()
    return [part.partition("\n```")[0] for part in text_.split("```python\n")[1:]]


@pytest.mark.parametrize("page", ["docs/clients.md", "client/README.md"])
def test_the_blocks_of_pages_run(
    page: str, loaded: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    missing = []
    for block in blocks(page):
        if "tistream_client.spark" in block:
            continue  # test_spark_source.py has a session
        try:
            exec(compile(block.replace("http://127.0.0.1:8000", loaded.url), page, "exec"), names)
        except ModuleNotFoundError as error:
            if error.name != "pandas":
                raise
            missing.append(error.name)
    out = capsys.readouterr().out
    if page == "docs/clients.md":
        assert "('put', " in out
        assert len(pl.read_parquet("orders.parquet")) == names["changes"].to_arrow().num_rows
        assert pl.read_parquet("table.parquet").equals(names["rows"])
    if missing:
        not_run(f"{', '.join(missing)} is not installed: make install")


def test_an_import_loads_nothing_heavy_and_no_platform() -> None:
    code = (
        "import sys, tistream_client\n"
        "for name in tistream_client.__all__: getattr(tistream_client, name)\n"
        "assert set(tistream_client.__all__) <= set(dir(tistream_client))\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "client")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "tistream_client" in found
    heavy = {"httpx", "pyarrow", "polars", "pandas", "sqlalchemy", "numpy", "numba", "pyspark", "tistream"}
    assert heavy.isdisjoint(found)
