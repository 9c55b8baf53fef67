"""A restore that the platform runs into a real MariaDB: killed at any chunk it goes on and has every row once; of two
processes one writes a chunk; a table that is there is refused; the address of the server is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.effort import cases
from support.mariadb import MariaDb
from support.restore_runs import Killed, Process, RestoreRuns
from tistream.errors import ClaimEnded
from tistream.wire.bulk.restores import MySqlPlace
from tistream_ingest.restore.mysql_chunks import MySqlChunks
from tistream_ingest.restore.restore_attempt import RestoreRefused, RestoreRetry

ROWID = ("shop", "big")  # 4,800 rows


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestoreRuns:
    monkeypatch.setattr(MySqlChunks, "chunk_rows", 900)
    return RestoreRuns(tmp_path)


@pytest.fixture
def database(mysql_url: str) -> str:
    return mysql_url.rpartition("/")[2]


@pytest.fixture
def place(runs: RestoreRuns, mariadb: MariaDb, database: str) -> MySqlPlace:
    (runs.folder / "dsn" / "copy").write_text(f"mysql://tistream:secret@127.0.0.1:{mariadb.port}")
    return MySqlPlace(kind="mysql", dsn_file="copy", rename={"shop": database, "types": database})


def count(mariadb: MariaDb, database: str, table: str = "big") -> int:
    ((found,),) = mariadb.run(f"SELECT COUNT(*) FROM `{database}`.`{table}`")
    return int(found)


def test_every_table_that_mariadb_can_hold_is_equal_to_what_it_was(
    runs: RestoreRuns, mariadb: MariaDb, database: str, place: MySqlPlace
) -> None:
    end = runs.points.world.end_ts
    names = [(one.database, one.head.name) for one in runs.points.world.history.visible_tables(end, "shop")
             if one.head.kind == "table"]  # fmt: skip
    name = runs.queue(place, end, *names)
    runs.claim().attempt()
    info = runs.info(name)
    assert info.state == "done"
    whole = [one for one in info.tables if one.checksum is not None]
    assert len(whole) > 25
    assert info.reason is not None
    assert all(f"shop.{one.table}" in info.reason for one in info.tables if one.checksum is None)
    for one in whole:
        table = one.table.replace("`", "``")
        assert count(mariadb, database, table) == one.rows == len(runs.points.lines("shop", one.table, end))


# Into files: unit/restore/test_platform_restores.py
@pytest.mark.parametrize(
    ("at", "after"),
    cases(
        [(0, False), (2, True), (5, False)],
        [(0, True), (1, False), (1, True), (2, False), (3, False), (3, True), (4, False), (4, True), (5, True)],
    ),
)
def test_a_restore_killed_at_a_chunk_goes_on_and_doubles_no_row(
    runs: RestoreRuns, mariadb: MariaDb, database: str, place: MySqlPlace, at: int, after: bool
) -> None:
    name = runs.queue(place, runs.points.world.end_ts, ROWID)
    objects = runs.points.world.objects
    with pytest.raises(Killed):
        runs.claim(Process(objects, at=at, after=after)).attempt()
    runs.lease_ends()
    rest = Process(objects)
    runs.claim(rest).attempt()
    assert runs.info(name).state == "done"
    assert count(mariadb, database) == 4800
    ((chunks,),) = mariadb.run(f"SELECT COUNT(*) FROM {database}.tistream_restore WHERE chunk > 0")
    assert rest.written == chunks - at - after


def test_of_two_processes_one_writes_each_chunk_and_the_loser_is_fenced(
    runs: RestoreRuns, mariadb: MariaDb, database: str, place: MySqlPlace
) -> None:
    name = runs.queue(place, runs.points.world.end_ts, ROWID)
    overtaken: list[bool] = []

    def overtake() -> None:
        if not overtaken:
            overtaken.append(True)
            runs.lease_ends()
            runs.claim().attempt()

    with pytest.raises(ClaimEnded):
        runs.claim(Process(runs.points.world.objects, meanwhile=overtake)).attempt()
    assert runs.info(name).state == "done"
    assert count(mariadb, database) == 4800


def test_a_table_that_is_there_is_refused_by_name_and_replaced_on_request(
    runs: RestoreRuns, mariadb: MariaDb, database: str, place: MySqlPlace
) -> None:
    mariadb.run(f"CREATE TABLE {database}.big (a int)")
    mariadb.run(f"INSERT INTO {database}.big VALUES (1)")
    ts = runs.points.world.end_ts
    runs.queue(place, ts, ("shop", "ntbl"), ROWID)
    restoring = runs.claim()
    with pytest.raises(RestoreRefused, match=rf"{database}\.big is there"):
        restoring.attempt()
    restoring.report_progress("failed")
    assert count(mariadb, database) == 1
    assert mariadb.run(f"SHOW TABLES FROM {database} LIKE 'ntbl'") == []
    runs.queue(place, ts, ROWID, if_exists="replace")
    runs.claim().attempt()
    assert count(mariadb, database) == 4800


def test_a_row_that_another_program_writes_is_found_by_the_comparison(
    runs: RestoreRuns, mariadb: MariaDb, database: str, place: MySqlPlace
) -> None:
    runs.queue(place, runs.points.world.end_ts, ROWID)
    with pytest.raises(Killed):
        runs.claim(Process(runs.points.world.objects, at=2)).attempt()
    mariadb.run(f"DELETE FROM {database}.big LIMIT 1")
    runs.lease_ends()
    with pytest.raises(RestoreRefused, match="differs from what it was"):
        runs.claim().attempt()


def test_a_server_that_refuses_the_password_is_tried_again_and_nothing_of_its_address_is_shown(
    runs: RestoreRuns, mariadb: MariaDb
) -> None:
    (runs.folder / "dsn" / "wrong").write_text(f"mysql://tistream:not-this-one@127.0.0.1:{mariadb.port}")
    runs.queue(MySqlPlace(kind="mysql", dsn_file="wrong"), runs.points.world.end_ts, ROWID)
    with pytest.raises(RestoreRetry) as failed:
        runs.claim().attempt()
    text = str(failed.value)
    assert "1045" in text or "denied" in text
    for secret in ("not-this-one", "127.0.0.1", "wrong", str(mariadb.port)):
        assert secret not in text, text


def test_two_databases_of_one_name_are_refused(runs: RestoreRuns, place: MySqlPlace) -> None:
    one = MySqlPlace(kind="mysql", dsn_file=place.dsn_file, rename=dict.fromkeys(("shop", "types"), "both"))
    ts = runs.points.world.end_ts
    runs.queue(one, ts, ("shop", "ntbl"), ("shop", "NTBL"))
    with pytest.raises(RestoreRefused, match="two tables"):
        runs.claim().attempt()
