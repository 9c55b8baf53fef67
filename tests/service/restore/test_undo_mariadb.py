"""Undo of recorded transactions in a real MariaDB: afterwards each table is as SELECT showed it just before."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from simulation.api.test_undo_golden import transactions
from support import golden
from support.api_world import Platform
from support.effort import FULL
from support.mariadb import MariaDb
from support.points_world import point_world
from support.pull import Consumer
from support.undo_world import undo
from tistream.restore.fingerprint import Fingerprint, of_rows
from tistream.restore.insert_sql import insert_statements
from tistream.restore.undo_sql import SESSION
from tistream.schema.tidb.create_table import Dialect, UnsupportedTable, table_statements
from tistream.schema.visible import TableVersion
from tistream.targets.mysql import MySqlTarget
from tistream.targets.mysql_tables import MySqlTables
from tistream.targets.mysql_url import MySqlUrl
from tistream.targets.restored_table import RestoredTable
from tistream_cli.app import app
from tistream_cli.restore.undo import apply
from tistream_client.cli.errors import CliError

EVERYTHING = golden.load("everything")
Name = tuple[str, str]


def batch_at(version: TableVersion, name: Name, ts: int) -> pa.RecordBatch:
    """The rows of a table at `ts`, as ListRows sends them."""
    body = point_world("everything", 4).page(*name, ts, form="arrow")
    found = pa.ipc.open_stream(body).read_all().combine_chunks()
    rows = found.column("row").combine_chunks()
    arrays = rows.flatten() if found.num_rows else [pa.array([], field.type) for field in rows.type]
    assert [field.name for field in rows.type] == [column.name for column in version.table.visible_columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(rows.type)))


@cache
def restorable() -> dict[int, list[Name]]:
    """Transactions that changed only tables that MariaDB can hold, whose definition they do not change: by start_ts,
    the tables."""
    source = point_world("everything", 4).world.source
    found = {}
    for start, events in transactions("everything").items():
        names = sorted({(event["database"], event["table"]) for event in events})
        ts = int(events[0]["commit_ts"])
        versions = [source.table(one, *name) for name in names for one in (ts - 1, ts)]
        if all(version is not None and holdable(version) for version in versions) and len(
            set(map(id, versions))
        ) == len(names):
            found[start] = names
    return found


def holdable(version: TableVersion) -> bool:
    try:
        table_statements(version.stored.info(), version.name, Dialect.MARIADB)
    except UnsupportedTable:
        return False
    return bool(version.table.visible_columns)


def columns_of(name: Name, ts: int) -> TableVersion:
    version = point_world("everything", 4).world.source.table(ts, *name)
    assert version is not None
    return version


def fill(target: MySqlTarget, database: str, name: Name, ts: int) -> None:
    """The table as of `ts`, in `database`."""
    version = columns_of(name, ts)
    place = (database, name[1])
    target.execute(f"DROP TABLE IF EXISTS `{database}`.`{name[1].replace('`', '``')}`")
    target.execute(table_statements(version.stored.info(), place, Dialect.MARIADB).create)
    target.execute_all(insert_statements(batch_at(version, name, ts), version.table.visible_columns, place))


def selected(target: MySqlTarget, database: str, name: Name, ts: int) -> Fingerprint:
    """What SELECT shows in `database`, with the columns as of `ts`."""
    version = columns_of(name, ts)
    statements = table_statements(version.stored.info(), (database, name[1]), Dialect.MARIADB)
    return MySqlTables(target).fingerprint(
        RestoredTable(name, (database, name[1]), version.table.visible_columns, statements, "")
    )


@pytest.fixture
def url(mariadb: MariaDb, mysql_url: str) -> MySqlUrl:
    return MySqlUrl("127.0.0.1", mariadb.port, "tistream", "secret", mysql_url.rpartition("/")[2])


def test_after_the_undo_each_table_is_as_select_showed_it_before_the_transaction(url: MySqlUrl) -> None:
    assert url.database is not None
    starts = sorted(restorable())
    several = [start for start in starts if len(transactions("everything")[start]) > 3]
    some = starts if FULL else random.Random(9).sample(starts, 25) + random.Random(9).sample(several, 10)
    assert len(starts) > 500
    with MySqlTarget(url) as target:
        for start in some:
            names = [name for name in restorable()[start] if name[0] == restorable()[start][0][0]]
            commit_ts = int(transactions("everything")[start][0]["commit_ts"])
            if len(names) < len(restorable()[start]):
                continue  # of two databases, which into_database refuses
            for name in names:
                fill(target, url.database, name, commit_ts)
            plan = undo(point_world("everything", 4), start).answer(Dialect.MARIADB, url.database)
            assert plan["conflicts"] == []
            assert apply(target, plan["statements"]) == len(plan["statements"])
            for name in names:
                version = columns_of(name, commit_ts - 1)
                before = of_rows(batch_at(version, name, commit_ts - 1), version.table.visible_columns, Dialect.MARIADB)
                assert selected(target, url.database, name, commit_ts) == before, (start, name)


def test_each_change_of_a_later_transaction_stays(url: MySqlUrl) -> None:
    """As of the end: rows that the undo reports as conflicts stay, and every other changed row is as it was before."""
    assert url.database is not None
    end = EVERYTHING.end_ts
    one = point_world("everything", 4)
    seen: dict[str, int] = defaultdict(int)
    with MySqlTarget(url) as target:
        for start in sorted(restorable()) if FULL else random.Random(4).sample(sorted(restorable()), 150):
            plan = undo(one, start, ts=end).answer(Dialect.MARIADB, None)
            names = {(line["database"], line["table"]) for line in plan["statements"]}
            if len(names) != 1 or not holdable(columns_of(next(iter(names)), end)):
                continue
            (name,) = names
            fill(target, url.database, name, end)
            moved = undo(one, start, ts=end).answer(Dialect.MARIADB, url.database)["statements"]
            apply(target, moved)
            for op in ("insert", "update", "delete", "conflicts"):
                seen[op] += plan["counts"][op]
            ((count,),) = target.rows(f"SELECT COUNT(*) FROM `{url.database}`.`{name[1].replace('`', '``')}`")
            grown = plan["counts"]["insert"] - plan["counts"]["delete"]
            assert count == len(one.lines(*name, end)) + grown
    assert min(seen["update"], seen["delete"], seen["conflicts"]) > 0, dict(seen)


@pytest.fixture
def loaded(everything: tuple[Platform, Consumer]) -> Consumer:
    return everything[1]


def run(consumer: Consumer, command: str, *arguments: str) -> Result:
    whole = [command, "--cluster", "7", "--tenant", "acme", "--url", consumer.url, *arguments]
    return CliRunner().invoke(app, whole)


def reversible() -> tuple[int, Name, dict[str, Any]]:
    """A transaction that changed rows of one table, and of which everything can be taken back at the end."""
    one = point_world("everything", 4)
    for start, names in sorted(restorable().items(), reverse=True):
        if len(names) == 1 and one.exists(*names[0], EVERYTHING.end_ts) and names[0][1].isidentifier():
            plan = undo(one, start, ts=EVERYTHING.end_ts).answer(Dialect.MARIADB, None)
            if plan["counts"]["update"] and not plan["counts"]["conflicts"]:
                return start, names[0], plan
    raise AssertionError("no such transaction")


def test_the_command_shows_the_plan_and_applies_it_whole(
    loaded: Consumer, mariadb: MariaDb, url: MySqlUrl, tmp_path: Path
) -> None:
    start, name, plan = reversible()
    shown = run(loaded, "undo", "--txn", str(start))
    assert shown.exit_code == 0, shown.output
    assert f"{plan['counts']['update']} update" in shown.output
    assert "nothing was changed" in shown.output
    as_json = run(loaded, "undo", "--txn", str(start), "-o", "json")
    assert json.loads(as_json.output)["counts"] == plan["counts"]
    column, value = next(iter(transactions("everything")[start][0]["key"].items()))
    chosen = run(loaded, "undo", "--txn", str(start), "--where", f"{column}={value}", "-o", "json")
    assert sum(json.loads(chosen.output)["counts"].values()) == 1
    assert "COLUMN=VALUE" in str(run(loaded, "undo", "--txn", str(start), "--where", column).exception)
    secret = tmp_path / "url"
    secret.write_text(f"mysql://tistream:secret@127.0.0.1:{mariadb.port}/{url.database}\n")
    into = ("--into-file", str(secret))
    restored = run(loaded, "restore", ".".join(name), "--at", str(EVERYTHING.end_ts), *into)
    assert restored.exit_code == 0, restored.output
    with MySqlTarget(url) as target:
        assert url.database is not None
        before = selected(target, url.database, name, EVERYTHING.end_ts)
        applied = run(loaded, "undo", "--txn", str(start), "--apply", *into)
        assert applied.exit_code == 0, applied.output
        assert "applied: " in applied.output
        after = selected(target, url.database, name, EVERYTHING.end_ts)
        assert after != before
        again = run(loaded, "undo", "--txn", str(start), "--apply", *into)
        assert "nothing was changed: the " in str(again.exception)
        assert selected(target, url.database, name, EVERYTHING.end_ts) == after


def test_one_row_that_differs_in_the_target_rolls_everything_back(
    loaded: Consumer, mariadb: MariaDb, url: MySqlUrl
) -> None:
    start = max(
        (start for start, names in restorable().items() if len(names) == 1 and names[0][0] == "shop"),
        key=lambda start: len(transactions("everything")[start]),
    )
    (name,) = restorable()[start]
    commit_ts = int(transactions("everything")[start][0]["commit_ts"])
    assert url.database is not None
    with MySqlTarget(url) as target:
        fill(target, url.database, name, commit_ts)
        plan = undo(point_world("everything", 4), start).answer(Dialect.MARIADB, url.database)
        target.execute(plan["statements"][-1]["sql"])
        before = selected(target, url.database, name, commit_ts)
        with pytest.raises(CliError, match=r"nothing was changed: the .*(found no row|was refused)"):
            apply(target, plan["statements"])
        assert selected(target, url.database, name, commit_ts) == before
        assert target.rows("SELECT @@session.time_zone") == [(SESSION[0].split("'")[1],)]


REFUSED = [
    ({"start_ts": ["5"]}, 410),
    ({"start_ts": [str(EVERYTHING.end_ts - 1)]}, 404),
    ({"start_ts": ["x"]}, 400),
    ({}, 400),
    ({"start_ts": ["5"], "window": {"from": "5"}}, 400),
    ({"window": {"from": "5"}}, 410),
    ({"window": {"from": "2200-01-01T00:00:00Z"}}, 400),
    ({"window": {"from": str(EVERYTHING.snapshot_ts)}, "tables": ["mysql.*"]}, 400),
    ({"window": {"from": str(EVERYTHING.snapshot_ts)}, "tables": ["no_such.*"]}, 404),
    ({"window": {"from": str(EVERYTHING.snapshot_ts)}, "mode": "sql", "into_database": "x"}, 400),
    ({"start_ts": ["5"], "mode": "apply"}, 400),
]


@pytest.mark.parametrize(("body", "status"), REFUSED)
def test_each_refusal_is_a_problem(loaded: Consumer, body: dict[str, Any], status: int) -> None:
    answer = loaded.client.post(f"{loaded.base}/undos", json=body)
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_undo_of_everything_is_planned_over_http(loaded: Consumer) -> None:
    """Every row that anything changed, and no system table."""
    answer = loaded.client.post(f"{loaded.base}/undos", json={"window": {"from": str(EVERYTHING.snapshot_ts)}})
    assert answer.status_code == 200, answer.text[:500]
    rows = {
        (event["table_id"], json.dumps(event["key"]))
        for events in transactions("everything").values()
        for event in events
    }
    assert sum(answer.json()["counts"].values()) == len(rows)
    assert not {one["database"] for one in answer.json()["conflicts"]} & {"mysql", "sys"}


def test_a_definition_is_that_of_its_ts(loaded: Consumer) -> None:
    path = f"{loaded.base}/databases/shop/tables/orders/definition"
    found = loaded.client.get(path, params={"ts": str(EVERYTHING.end_ts)})
    assert found.status_code == 200
    assert found.json()["info"] == columns_of(("shop", "orders"), EVERYTHING.end_ts).stored.info()
    assert (found.json()["ts"], found.json()["table"]) == (str(EVERYTHING.end_ts), "orders")
    for query, status in ({"ts": "5"}, 410), ({"ts": "x"}, 400), ({"colour": "red"}, 400):
        assert loaded.client.get(path, params=query).status_code == status
    assert loaded.client.get(path.replace("orders", "none")).status_code == 404
