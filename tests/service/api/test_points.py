"""Reads at a point in time over HTTP, on real services."""

from __future__ import annotations

import io
import json
import random
from typing import Any
from urllib.parse import quote

import httpx
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from support import compare, golden
from support.points_world import commits, point_world
from support.pull import PROBLEM, Consumer
from tistream.model.ts import MAX_TS, physical_ms
from tistream_cli.app import app

EVERYTHING = golden.load("everything")
TENANT = "/v1/clusters/7/tenants/acme"
FUTURE = str(4_102_444_800_000 << 18)
Line = dict[str, Any]


def get(consumer: Consumer, path: str, **headers: str) -> httpx.Response:
    return consumer.client.get(consumer.url + TENANT + path, headers=headers)


def lines(consumer: Consumer, path: str) -> list[Line]:
    answer = get(consumer, path)
    assert answer.status_code == 200, answer.text[:500]
    return [json.loads(line) for line in answer.content.splitlines()]


def table_path(database: str, table: str) -> str:
    return f"/databases/{quote(database, safe='')}/tables/{quote(table, safe='')}"


def some_tables(count: int) -> list[tuple[int, str, str]]:
    found = [(ts, database, table) for ts, tables in commits("everything") for database, table, _ in tables]
    return random.Random(3).sample(found, count)


def test_rows_are_those_of_the_pool_in_memory(loaded: Consumer) -> None:
    one = point_world("everything")
    for ts, database, table in some_tables(25):
        *rows, end = lines(loaded, f"{table_path(database, table)}/rows?ts={ts}")
        assert rows == one.lines(database, table, ts)
        assert end == {"type": "end", "ts": str(ts), "cursor": None}


def test_every_page_resumes(loaded: Consumer) -> None:
    ts, database, table = max(
        some_tables(60), key=lambda one: len(point_world("everything").lines(one[1], one[2], one[0]))
    )
    path = f"{table_path(database, table)}/rows"
    *rows, _ = lines(loaded, f"{path}?ts={ts}")
    found: list[Line] = []
    query = f"ts={ts}"
    while query:
        *page, end = lines(loaded, f"{path}?{query}&limit=7")
        found += page
        query = end["cursor"] and f"cursor={end['cursor']}"
    assert found == rows
    assert len(rows) > 7


def test_now_and_a_time_of_day(loaded: Consumer) -> None:
    one = point_world("everything")
    ts, database, table = next(found for found in some_tables(200) if one.exists(*found[1:], EVERYTHING.end_ts))
    path = f"{table_path(database, table)}/rows"
    *rows, end = lines(loaded, f"{path}?ts=now")
    assert int(end["ts"]) >= EVERYTHING.end_ts
    assert rows == one.lines(database, table, EVERYTHING.end_ts)
    ms = physical_ms(ts) + 1
    (seconds, rest) = divmod(ms, 1000)
    text = f"{pl.from_epoch(pl.Series([seconds]))[0].isoformat()}.{rest:03}Z"
    *rows, end = lines(loaded, f"{path}?ts={text}")
    assert end["ts"] == str(ms << 18)
    assert rows == one.lines(database, table, ms << 18)


def keyed() -> tuple[int, str, str, list[Line]]:
    """A table whose rows are stored by an integer key, with some rows."""
    one = point_world("everything")
    for ts, database, table in some_tables(400):
        version = one.world.source.table(ts, database, table)
        if version is not None and version.table.pk_is_handle and version.table.partition_ids is None:
            rows = one.lines(database, table, ts)
            if len(rows) > 5:
                return ts, database, table, rows
    raise AssertionError("no such table")


def test_one_row_and_a_range_of_rows(loaded: Consumer) -> None:
    ts, database, table, rows = keyed()
    path = f"{table_path(database, table)}/rows?ts={ts}"
    keys = [quote(json.dumps(row["key"])) for row in rows]
    assert lines(loaded, f"{path}&key={keys[2]}")[:-1] == [rows[2]]
    assert lines(loaded, f"{path}&from_key={keys[1]}&to_key={keys[4]}")[:-1] == rows[1:4]
    assert lines(loaded, f"{path}&to_key={keys[3]}&limit=2")[:-1] == rows[:2]
    (name,) = rows[0]["key"]
    assert lines(loaded, f"{path}&key={quote(json.dumps({name: -987654321}))}")[:-1] == []
    columns = list(rows[0]["row"])[::-1][:2]
    got = lines(loaded, f"{path}&columns={quote(','.join(columns))}")[:-1]
    assert [row["row"] for row in got] == [{name: row["row"][name] for name in columns} for row in rows]
    assert [row["key"] for row in got] == [row["key"] for row in rows]


def test_parts_of_rows_and_of_changes_are_the_whole(loaded: Consumer) -> None:
    for ts, database, table in some_tables(6):
        path = table_path(database, table)
        answer = get(loaded, f"{path}/rows/parts?ts={ts}&parts=5").json()
        assert answer["ts"] == str(ts)
        parts = answer["parts"]
        assert [one["until"] for one in parts[:-1]] == [one["cursor"] for one in parts[1:]]
        queries = [f"cursor={one['cursor']}" + (f"&until={one['until']}" if one["until"] else "") for one in parts]
        found = [row for query in queries for row in lines(loaded, f"{path}/rows?{query}")[:-1]]
        assert found == lines(loaded, f"{path}/rows?ts={ts}")[:-1]
    path, low = table_path("shop", "orders"), EVERYTHING.snapshot_ts
    parts = get(loaded, f"{path}/changes/parts?start_ts={low}&parts=4").json()["parts"]
    assert 1 <= len(parts) <= 4
    assert [one["start_ts"] for one in parts] == [str(low), *(one["end_ts"] for one in parts[:-1])]
    pulled = [
        line
        for one in parts
        for line in lines(loaded, f"{path}/changes?start_ts={one['start_ts']}&end_ts={one['end_ts']}")[:-1]
    ]
    assert pulled == lines(loaded, f"{path}/changes?start_ts={low}&end_ts={parts[-1]['end_ts']}")[:-1]
    assert get(loaded, f"{path}/changes/parts?start_ts=now").json() == {"parts": []}


def test_a_part_of_other_rows_is_refused(loaded: Consumer) -> None:
    ts, database, table, _ = keyed()
    path = table_path(database, table)
    [one, *_], [other, *_] = (get(loaded, f"{path}/rows/parts?ts={at}").json()["parts"] for at in (ts, ts + 1))
    for query in (f"cursor={one['cursor']}&until={other['cursor']}", f"ts={ts}&until={one['cursor']}"):
        answer = get(loaded, f"{path}/rows?{query}")
        assert (answer.status_code, answer.json()["parameter"]) == (400, "until")


def test_a_row_of_any_table_is_found_by_its_key(loaded: Consumer) -> None:
    one = point_world("everything")
    for ts, database, table in some_tables(40):
        rows = one.lines(database, table, ts)
        for row in random.Random(ts).sample(rows, min(len(rows), 1)):
            key = quote(json.dumps(row["key"]))
            assert lines(loaded, f"{table_path(database, table)}/rows?ts={ts}&key={key}")[:-1] == [row]


def test_a_row_with_a_float_in_its_key_is_found_by_it(loaded: Consumer) -> None:
    path = table_path("shop", "k_enum")
    *rows, _ = lines(loaded, f"{path}/rows?ts={EVERYTHING.end_ts}")
    assert 1e300 in [row["key"]["f"] for row in rows]
    for row in rows:
        key = quote(json.dumps(row["key"]))
        assert lines(loaded, f"{path}/rows?ts={EVERYTHING.end_ts}&key={key}")[:-1] == [row]
        [history] = lines(loaded, f"{path}/history?key={key}")
        assert history["versions"][0]["commit_ts"] == row["commit_ts"]


def test_arrow_and_parquet_hold_the_same_rows(loaded: Consumer) -> None:
    ts, database, table, rows = keyed()
    path = f"{table_path(database, table)}/rows?ts={ts}"
    arrow = get(loaded, f"{path}&format=arrow")
    assert arrow.headers["content-type"] == "application/vnd.apache.arrow.stream"
    reader = pa.ipc.open_stream(arrow.content)
    batches = list(reader.iter_batches_with_custom_metadata())
    told = {name.decode(): value.decode() for name, value in batches[-1].custom_metadata.to_dict().items()}
    assert told == {"tistream.type": "end", "tistream.ts": str(ts)}
    found = pa.Table.from_batches([one.batch for one in batches])
    assert found.column("commit_ts").to_pylist() == [int(row["commit_ts"]) for row in rows]
    assert [list(map(str, key.values())) for key in found.column("key").to_pylist()] == [
        list(map(str, row["key"].values())) for row in rows
    ]
    parquet = get(loaded, f"{path}&format=parquet")
    assert parquet.headers["content-type"] == "application/vnd.apache.parquet"
    file = pq.ParquetFile(io.BytesIO(parquet.content))
    assert file.metadata.metadata[b"tistream.ts"] == str(ts).encode()
    assert file.read().equals(found)
    assert pl.read_parquet(io.BytesIO(parquet.content)).height == len(rows)
    first = pq.ParquetFile(io.BytesIO(get(loaded, f"{path}&format=parquet&limit=2").content))
    cursor = first.metadata.metadata[b"tistream.cursor"].decode()
    rest = get(loaded, f"{table_path(database, table)}/rows?cursor={cursor}&format=parquet")
    assert pa.concat_tables([first.read(), pq.read_table(io.BytesIO(rest.content))]).equals(found)


def test_an_empty_table_is_an_empty_answer_in_every_format(loaded: Consumer) -> None:
    ts, database, table, rows = keyed()
    path = f"{table_path(database, table)}/rows?ts={ts}&key={quote(json.dumps(dict.fromkeys(rows[0]['key'], -5)))}"
    assert len(lines(loaded, path)) == 1
    assert pa.ipc.open_stream(get(loaded, f"{path}&format=arrow").content).read_all().num_rows == 0
    assert pq.read_table(io.BytesIO(get(loaded, f"{path}&format=parquet").content)).num_rows == 0


def test_history_transactions_and_diff(loaded: Consumer) -> None:
    one = point_world("everything")
    low, high = EVERYTHING.snapshot_ts, EVERYTHING.end_ts
    ts, database, table, rows = keyed()
    key = rows[0]["key"]
    answer = get(loaded, f"{table_path(database, table)}/history?key={quote(json.dumps(key))}&to={high}").json()
    assert answer["versions"] == one.history(database, table, key, low, high)
    assert answer["versions"]
    assert (answer["key"], answer["from"], answer["to"], answer["next_to"]) == (key, str(low), str(high), None)
    start_ts = answer["versions"][0]["start_ts"]
    assert lines(loaded, f"/transactions/{start_ts}") == one.transaction(int(start_ts))
    *events, end = lines(loaded, f"{table_path(database, table)}/diff?from={ts - 1}&to={high}")
    assert events == one.diff(database, table, ts - 1, high)
    assert end == {"type": "end", "from": str(ts - 1), "to": str(high), "cursor": None}
    *page, end = lines(loaded, f"{table_path(database, table)}/diff?from={low}&to={ts}&limit=2")
    *rest, last = lines(loaded, f"{table_path(database, table)}/diff?cursor={end['cursor']}")
    assert page + rest == one.diff(database, table, low, ts)
    assert last["cursor"] is None
    for form in ("arrow", "parquet"):
        assert get(loaded, f"{table_path(database, table)}/diff?from={low}&to={ts}&format={form}").status_code == 200


def test_a_squashed_pull_ends_where_a_pull_goes_on(loaded: Consumer) -> None:
    one = point_world("everything")
    stamps = [ts for ts, _ in commits("everything")]
    low, high = stamps[200], stamps[900]
    for scope in ("", "/databases/shop"):
        names = ["shop"] if scope else []
        found: list[Line] = []
        query = f"squash=true&start_ts={low}&end_ts={high}&limit=50"
        while True:
            *events, end = lines(loaded, f"{scope}/changes?{query}")
            found += events
            if end["type"] == "resolved":
                break
            query = f"squash=true&cursor={end['cursor']}&limit=50"
        assert found == one.squash(*names, low=low, high=high)
        assert end["resolved_ts"] == str(high)
        after = lines(loaded, f"{scope}/changes?cursor={end['cursor']}&limit=100000")
        whole = lines(loaded, f"{scope}/changes?start_ts={high}&limit=100000")
        assert after[:-1] == whole[:-1]
        assert compare.form_differences([event for event in found if event["type"] == "ddl"]) == []


def test_answers_are_compressed_and_head_has_no_body(loaded: Consumer) -> None:
    ts, database, table, _ = keyed()
    path = f"{table_path(database, table)}/rows?ts={ts}"
    plain = get(loaded, path, **{"accept-encoding": "identity"})
    packed = get(loaded, path, **{"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    head = loaded.client.head(loaded.url + TENANT + path)
    assert (head.status_code, head.content) == (200, b"")


T1 = str(EVERYTHING.snapshot_ts + 1)
REFUSED = [
    (f"/databases/shop/tables/none/rows?ts={EVERYTHING.end_ts}", 404),
    (f"/databases/none/tables/none/rows?ts={EVERYTHING.end_ts}", 404),
    (f"/databases/mysql/tables/user/rows?ts={EVERYTHING.end_ts}", 404),
    ("/databases/shop/tables/big/rows?ts=5", 410),
    ("/databases/shop/tables/big/rows?ts=1970-01-01T00:00:05Z", 410),
    (f"/databases/shop/tables/big/rows?ts={FUTURE}", 400),
    ("/databases/shop/tables/big/rows?ts=now&colour=red", 400),
    ("/databases/shop/tables/big/rows?cursor=abc", 400),
    ("/databases/shop/tables/big/rows", 400),
    ("/databases/shop/tables/big/rows/parts?ts=5", 410),
    ("/databases/shop/tables/none/rows/parts?ts=now", 404),
    (f"/databases/shop/tables/none/changes/parts?start_ts={T1}", 404),
    (f"/databases/shop/tables/big/changes/parts?start_ts={T1}&end_ts={FUTURE}", 400),
    ("/databases/shop/tables/big/changes/parts?start_ts=5", 410),
    ("/databases/shop/tables/big/history", 400),
    ("/databases/shop/tables/big/history?key=%7B%22nothing%22:1%7D", 400),
    ("/databases/shop/tables/big/history?key=%7B%22id%22:1%7D&from=5", 410),
    ("/databases/shop/tables/none/history?key=%7B%22id%22:1%7D", 404),
    ("/databases/shop/tables/big/diff?from=5&to=now", 410),
    (f"/databases/shop/tables/big/diff?from={T1}&to=5", 400),
    (f"/databases/shop/tables/none/diff?from={T1}&to=now", 404),
    (f"/databases/shop/tables/big/diff?from={T1}&to={FUTURE}", 400),
    ("/transactions/abc", 400),
    ("/transactions/99999999999999999999", 400),
    ("/transactions/5", 410),
    (f"/transactions/{EVERYTHING.end_ts - 1}", 404),
    (f"/transactions/{FUTURE}", 400),
    (f"/transactions/{EVERYTHING.end_ts}?a=1", 400),
    (f"/changes?squash=true&start_ts=5&end_ts={EVERYTHING.end_ts}", 410),
    (f"/changes?squash=true&start_ts={T1}&follow=true", 400),
    (f"/databases/none/changes?squash=true&start_ts={T1}&end_ts={EVERYTHING.end_ts}", 404),
]


@pytest.mark.parametrize(("path", "status"), REFUSED)
def test_each_refusal_is_a_problem(loaded: Consumer, path: str, status: int) -> None:
    answer = get(loaded, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text[:300]
    found = answer.json()
    assert found["status"] == status
    if status == 410:
        assert int(found["earliest_ts"]) >= EVERYTHING.snapshot_ts


def test_a_ts_above_what_is_resolved_is_asked_to_come_back(loaded: Consumer) -> None:
    database, table = next((one[1], one[2]) for one in some_tables(9))
    above = EVERYTHING.end_ts + (3_600_000 << 18)
    undo = loaded.client.post(f"{loaded.url}{TENANT}/undos", json={"start_ts": [str(above)]})
    for answer in (
        get(loaded, f"{table_path(database, table)}/rows?ts={above}"),
        get(loaded, f"/transactions/{above}"),
        undo,
    ):
        assert answer.status_code == 503, answer.text[:300]
        assert int(answer.headers["retry-after"]) >= 1
        assert str(above) in answer.json()["detail"]


def test_a_start_ts_that_is_no_ts_is_described(loaded: Consumer) -> None:
    detail = get(loaded, f"/transactions/{MAX_TS + 1}").json()["detail"]
    assert f"from 0 to {MAX_TS}" in detail


def command(loaded: Consumer, *words: str) -> str:
    """The output of a command of `tistream`."""
    of = ["--cluster", "7", "--tenant", "acme", "--url", loaded.url]
    found = CliRunner().invoke(app, [*words, *of])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


def test_the_commands_print_what_the_api_answers(loaded: Consumer) -> None:
    one = point_world("everything")
    ts, database, table, rows = keyed()
    name = f"{database}.{table}"
    *printed, end = map(json.loads, command(loaded, "rows", name, "--at", str(ts), "--json").splitlines())
    assert printed == rows
    assert end == {"type": "end", "ts": str(ts), "cursor": None}
    head, *lines_ = command(loaded, "rows", name, "--at", str(ts), "--limit", "3").splitlines()
    assert head.split("\t") == [*rows[0]["row"], "changed"]
    assert len(lines_) == 3
    key = json.dumps(rows[0]["key"])
    versions = one.history(database, table, rows[0]["key"], EVERYTHING.snapshot_ts, EVERYTHING.end_ts)
    to = str(EVERYTHING.end_ts)
    assert list(map(json.loads, command(loaded, "history", name, key, "--to", to, "--json").splitlines())) == versions
    assert len(command(loaded, "history", name, key, "--to", to).splitlines()) == len(versions) + 1
    start_ts = versions[0]["start_ts"]
    printed = list(map(json.loads, command(loaded, "txn", start_ts, "--json").splitlines()))
    assert printed == one.transaction(int(start_ts))
    assert len(command(loaded, "txn", start_ts).splitlines()) == len(printed)  # a head, and no end
    low = str(EVERYTHING.snapshot_ts)
    *printed, _ = map(json.loads, command(loaded, "diff", name, "--from", low, "--to", str(ts), "--json").splitlines())
    assert printed == one.diff(database, table, int(low), ts)
    assert command(loaded, "diff", name, "--from", low, "--to", str(ts)).startswith("\ttable\tkey\tchange\n")


def test_a_squashed_pull_is_printed(loaded: Consumer) -> None:
    stamps = [ts for ts, _ in commits("everything")]
    words = ("pull", "--squash", "--start-ts", str(stamps[300]), "--end-ts", str(stamps[800]))
    *events, end = map(json.loads, command(loaded, *words).splitlines())
    assert events == point_world("everything").squash(low=stamps[300], high=stamps[800])
    assert end["resolved_ts"] == str(stamps[800])


def test_a_wrong_command_says_what_is_wrong(loaded: Consumer) -> None:
    of = ["--cluster", "7", "--tenant", "acme", "--url", loaded.url]
    for words, text in [
        (["rows", "shop"], "DATABASE.TABLE"),
        (["rows", "shop.none"], "no table shop.none"),
        (["rows", "shop.big", "--at", "5"], "earliest one kept"),
        (["history", "shop.big", "{"], "is not JSON"),
        (["txn", "abc"], "is not a start_ts, such as"),
        (["diff", "shop.big", "--from", "yesterday"], "is not a time"),
        (["pull", "--squash"], "--since"),
    ]:
        found = CliRunner().invoke(app, [*words, *of])
        assert found.exit_code != 0
        assert text in found.output + str(found.exception), (words, found.output, found.exception)
