"""A restore into a real MariaDB that is cut off anywhere goes on, and has every row once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.mariadb import MariaDb
from tistream.schema.tidb.create_table import TableStatements
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.targets.mysql_url import MySqlUrl
from tistream.targets.restore_marks import RestoredTables
from tistream.targets.restored_table import Mark, TableExists

TABLE = TableStatements("CREATE TABLE `{0}`.`t` (a int)", None)  # without a key: a row could be there twice
CHUNKS = [["INSERT INTO {0}.t VALUES (1), (2)"], ["INSERT INTO {0}.t VALUES (3)", "INSERT INTO {0}.t VALUES (4)"], []]


class Cut(Exception):
    """The process ends here."""


class CutTarget(MySqlTarget):
    """A connection that is cut before its `at`th statement."""

    def __init__(self, url: MySqlUrl, at: int) -> None:
        self._left: int | None = None
        super().__init__(url)
        self._left = at

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._connection.close()
                raise Cut

    def execute(self, sql: str) -> int:
        self._count()
        return super().execute(sql)

    def rows(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        self._count()
        return super().rows(sql, values)


@pytest.fixture
def url(mariadb: MariaDb, mysql_url: str) -> MySqlUrl:
    return MySqlUrl("127.0.0.1", mariadb.port, "tistream", "secret", mysql_url.rpartition("/")[2])


def ended(rows: int, cursor: str | None) -> Callable[[], tuple[int, str | None]]:
    return lambda: (rows, cursor)


def restore(target: MySqlTarget, database: str, *, replace: bool = False, name: str = "r1") -> None:
    tables = RestoredTables(target, database, name)
    mark = tables.begin("t", TableStatements(TABLE.create.format(database), None), replace=replace)
    while not mark.complete:
        at = int(mark.cursor or "0")
        inserts = [one.format(database) for one in CHUNKS[at]]
        more = str(at + 1) if at + 1 < len(CHUNKS) else None
        mark = tables.write("t", mark, inserts, ended((2, 2, 0)[at], more))


def values(mariadb: MariaDb, database: str) -> list[int]:
    return [int(value) for (value,) in mariadb.run(f"SELECT a FROM {database}.t ORDER BY a")]


def test_cut_before_any_statement_it_goes_on_and_has_every_row_once(mariadb: MariaDb, url: MySqlUrl) -> None:
    assert url.database is not None
    for at in range(200):
        try:
            with CutTarget(url, at) as target:
                restore(target, url.database)
        except Cut:
            pass
        else:
            break
        with MySqlTarget(url) as target:
            restore(target, url.database)
        assert values(mariadb, url.database) == [1, 2, 3, 4], f"cut before statement {at}"
        mariadb.run(f"DROP TABLE {url.database}.t, {url.database}.tistream_restore")
    else:
        pytest.fail("no run came to its end")
    assert at > 15


def test_a_table_that_is_there_is_refused_or_replaced(mariadb: MariaDb, url: MySqlUrl) -> None:
    assert url.database is not None
    mariadb.run(f"CREATE TABLE {url.database}.t (a int)")
    mariadb.run(f"INSERT INTO {url.database}.t VALUES (99)")
    mariadb.run("COMMIT")
    with MySqlTarget(url) as target:
        with pytest.raises(TableExists, match=r"tistream_\d+\.t"):
            restore(target, url.database)
        restore(target, url.database, replace=True)
    assert values(mariadb, url.database) == [1, 2, 3, 4]


def test_a_table_that_was_dropped_since_is_restored_again(mariadb: MariaDb, url: MySqlUrl) -> None:
    assert url.database is not None
    with MySqlTarget(url) as target:
        restore(target, url.database)
        mariadb.run(f"DROP TABLE {url.database}.t")
        restore(target, url.database)
    assert values(mariadb, url.database) == [1, 2, 3, 4]


def test_the_mark_counts_rows_and_is_of_one_restore(url: MySqlUrl) -> None:
    assert url.database is not None
    with MySqlTarget(url) as target:
        restore(target, url.database)
        assert RestoredTables(target, url.database, "r1").mark("t") == Mark(3, 4, None)
        assert RestoredTables(target, url.database, "r2").mark("t") is None


def test_errors_name_the_server_and_show_no_password_and_no_values(url: MySqlUrl) -> None:
    wrong = MySqlUrl(url.host, url.port, url.user, "wrong password", url.database)
    with pytest.raises(TargetFailed, match=r"tistream@127.0.0.1:.*1045") as refused:
        MySqlTarget(wrong)
    assert "wrong password" not in str(refused.value)
    with MySqlTarget(url) as target:
        target.execute("CREATE TABLE u (a varchar(20) PRIMARY KEY)")
        target.execute("INSERT INTO u VALUES ('private')")
        with pytest.raises(TargetFailed, match=r"error 1062.*duplicate entry") as failed:
            target.execute("INSERT INTO u VALUES ('private')")
        assert "private" not in str(failed.value)
