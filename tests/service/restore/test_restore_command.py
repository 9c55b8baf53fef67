"""`tistream restore` through the real API, into a real MariaDB and into files: what SELECT showed at the ts."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from support import golden
from support.api_world import Platform
from support.effort import FULL
from support.mariadb import MariaDb
from support.points_world import commits, point_world
from support.pull import Consumer
from tistream.restore.fingerprint import Fingerprint
from tistream.restore.table_names import TableNames
from tistream.schema.tidb.create_table import Dialect
from tistream.targets.mysql_tables import MySqlTables
from tistream.targets.parquet_tables import ParquetTables
from tistream.targets.restored_table import Chunk, Mark, RestoredTable
from tistream.targets.sql_files import SqlFiles
from tistream_cli.app import app
from tistream_cli.restore.into import parse_into
from tistream_cli.restore.past import Past
from tistream_cli.restore.restore import RestoreOptions, Restoring
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import NoAnswer
from tistream_client.core.errors import Unavailable

EVERYTHING = golden.load("everything")
FUTURE = 4_102_444_800_000 << 18


@pytest.fixture
def command(everything: tuple[Platform, Consumer], monkeypatch: pytest.MonkeyPatch) -> Consumer:
    monkeypatch.setenv("TISTREAM_URL", everything[1].url)
    return everything[1]


@pytest.fixture
def into(mariadb: MariaDb, mysql_url: str) -> str:
    return f"mysql://tistream:secret@127.0.0.1:{mariadb.port}/{mysql_url.rpartition('/')[2]}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["restore", "--cluster", "7", "--tenant", "acme", *arguments])


def wrong(*arguments: str) -> str:
    """The error of a command that fails."""
    found = run(*arguments)
    assert found.exit_code != 0, found.output
    usage = isinstance(found.exception, SystemExit)  # of a wrong option: Typer prints the error itself
    return found.output if usage or found.exception is None else str(found.exception)


def sampled(count: int, seed: int) -> list[tuple[int, str, str]]:
    found = [(ts, database, table) for ts, tables in commits("everything") for database, table, _ in tables]
    return random.Random(seed).sample(found, count)


def databases() -> list[str]:
    return point_world("everything").world.source.databases(EVERYTHING.end_ts)


def past(consumer: Consumer, ts: int = EVERYTHING.end_ts) -> Past:
    return Past.at(ApiClient(consumer.url), "7", "acme", str(ts))


def test_every_table_that_mariadb_can_hold_has_the_same_rows(command: Consumer, mariadb: MariaDb, into: str) -> None:
    """Each database goes into one of its own; what MariaDB cannot hold is named, and nothing else is left out."""
    shown: list[str] = []
    for database in databases():
        target = mariadb.new_database().rpartition("/")[2]
        parsed = parse_into(f"mysql://tistream:secret@127.0.0.1:{mariadb.port}/{target}", None)
        options = RestoreOptions(database, str(EVERYTHING.end_ts), parsed)
        one = past(command)
        found = Restoring(one, parsed.open(Dialect.TIDB), options, shown.append).run(TableNames(database))
        assert all("mariadb does not have" in one or "sequence" in one for _, one in found.left_out), found.left_out
        listed = list(one.tables(TableNames(database)))
        assert len(found.tables) + len(found.left_out) == len(listed)
        for (_, name), fingerprint in found.tables:
            ((count,),) = mariadb.run(f"SELECT COUNT(*) FROM `{target}`.`{name.replace('`', '``')}`")
            assert count == fingerprint.rows == len(point_world("everything").lines(database, name, EVERYTHING.end_ts))
    assert len(shown) > 30
    assert all(line.endswith("equal in the target") for line in shown)


def test_tables_at_other_times_become_parquet_files_that_polars_reads(command: Consumer, tmp_path: Path) -> None:
    one = point_world("everything")
    for number, (ts, database, table) in enumerate(sampled(150 if FULL else 6, 5)):
        rows = one.lines(database, table, ts)
        directory = tmp_path / str(number)
        found = run(str(TableNames(database, table)), "--at", str(ts), "--into", f"parquet:{directory}")
        assert found.exit_code == 0, found.output
        assert f"{len(rows)} rows" in found.output
        read = pl.read_parquet(directory / "*" / "*.parquet")
        assert read.height == len(rows)
        assert read.columns == (list(rows[0]["row"]) if rows else read.columns)
        names = [name for name, kind in read.schema.items() if plain(kind) and shown_plainly(rows, name)]
        got = Counter(tuple(map(as_text, row)) for row in zip(*(read[name] for name in names), strict=True))
        assert names or not rows
        assert got == Counter(tuple(as_text(row["row"][name]) for name in names) for row in rows)


def plain(kind: pl.DataType) -> bool:
    return kind == pl.String or kind.is_integer()


def shown_plainly(rows: list[dict[str, Any]], name: str) -> bool:
    """Whether events show the column as strings or integers (and not as a JSON document or an array)."""
    return all(isinstance(row["row"][name], str | int | None) for row in rows)


def as_text(value: Any) -> str | None:
    return None if value is None else str(value)


def test_sql_files_run_by_a_client_give_the_same_table(
    command: Consumer, mariadb: MariaDb, into: str, tmp_path: Path
) -> None:
    ts, database, table = EVERYTHING.end_ts, "shop", "orders"
    made = run("shop.orders", "--at", str(ts), "--into", f"sql:{tmp_path / 'out'}", "--dialect", "mariadb")
    assert made.exit_code == 0, made.output
    mariadb.run("DROP DATABASE IF EXISTS shop")
    with mariadb.connect(into.rpartition("/")[2]) as connection, connection.cursor() as cursor:
        for file in sorted((tmp_path / "out").glob("*.sql")):
            for sql in file.read_text().split(";\n"):
                if sql.strip():
                    cursor.execute(sql)
    ((count,),) = mariadb.run("SELECT COUNT(*) FROM shop.orders")
    assert count == len(point_world("everything").lines(database, table, ts)) > 0
    mariadb.run("DROP DATABASE shop")


class Cut(Exception):
    """The process ends here."""


class CutAfter:
    """A RestoreTarget that is cut off at its n-th step, before or after the inner target has done it."""

    def __init__(self, inner: MySqlTables | ParquetTables | SqlFiles, step: int) -> None:
        self.dialect, self.compared, self.chunk_rows = inner.dialect, inner.compared, 7
        self._inner, self._left = inner, step

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Cut

    def begin(self, table: RestoredTable, *, replace: bool) -> Mark:
        self._step()
        found = self._inner.begin(table, replace=replace)
        self._step()
        return found

    def write(self, table: RestoredTable, before: Mark, chunk: Chunk) -> Mark:
        def batches() -> Iterator[Any]:
            for batch in chunk.batches:
                self._step()
                yield batch

        found = self._inner.write(table, before, Chunk(batches(), chunk.end))
        self._step()
        return found

    def add_foreign_keys(self, table: RestoredTable) -> None:
        self._step()
        self._inner.add_foreign_keys(table)

    def fingerprint(self, table: RestoredTable) -> Fingerprint | None:
        self._step()
        return self._inner.fingerprint(table)


@pytest.mark.parametrize("form", ["mysql", "parquet", "sql"])
def test_killed_at_every_chunk_it_goes_on_and_has_each_row_once(
    command: Consumer, into: str, tmp_path: Path, form: str
) -> None:
    """Each run gets one step further than the one before; the last one compares both sides."""
    text = into if form == "mysql" else f"{form}:{tmp_path / 'out'}"
    parsed = parse_into(text, None)
    options = RestoreOptions("shop.orders", str(EVERYTHING.end_ts), parsed)
    rows = len(point_world("everything").lines("shop", "orders", EVERYTHING.end_ts))
    assert rows > 20
    for step in range(1, 500):
        target = parsed.open(Dialect.MARIADB)
        one = Restoring(past(command), CutAfter(target, 3 + step % 5), options, lambda _: None)  # type: ignore[arg-type]
        try:
            found = one.run(TableNames("shop", "orders"))
        except Cut:
            continue
        assert found.tables[0][1].rows == rows
        break
    else:
        pytest.fail("it never came to its end")
    assert step > rows // 7 // 5
    again = run("shop.orders", "--at", str(EVERYTHING.end_ts), "--into", text)
    assert again.exit_code == 0, again.output
    assert f"{rows} rows" in again.output


def test_auto_increment_goes_on_above_the_highest_key(command: Consumer, mariadb: MariaDb, into: str) -> None:
    name, column = next(
        (f"{database}.{table}", column)
        for database in databases()
        for version in point_world("everything").world.source.tables_at(EVERYTHING.end_ts, scope_of(database))
        if (table := version.head.name).isidentifier() and (column := auto_increment(version.stored.info()))
        and point_world("everything").lines(database, table, EVERYTHING.end_ts)
    )  # fmt: skip
    assert run(name, "--at", str(EVERYTHING.end_ts), "--into", into, "--as", "copy").exit_code == 0
    database = into.rpartition("/")[2]
    ((highest,),) = mariadb.run(f"SELECT MAX({column}) FROM {database}.copy")
    ((following,),) = mariadb.run(
        "SELECT auto_increment FROM information_schema.tables"
        f" WHERE table_schema = '{database}' AND table_name = 'copy'"
    )
    assert following > highest


def scope_of(database: str) -> Any:
    from tistream.read.cursor import Scope

    return Scope(EVERYTHING.tenant, database)


def auto_increment(info: dict[str, Any]) -> str | None:
    return next((one["name"]["O"] for one in info["cols"] if one["type"]["Flag"] & 512), None)


def test_a_table_that_is_there_is_refused_named_otherwise_or_replaced(
    command: Consumer, mariadb: MariaDb, into: str
) -> None:
    database = into.rpartition("/")[2]
    mariadb.run(f"CREATE TABLE {database}.orders (a int)")
    at = ("shop.orders", "--at", str(EVERYTHING.end_ts), "--into", into)
    assert f"{database}.orders exists: --as" in wrong(*at)
    assert run(*at, "--as", "we`ird; DROP").exit_code == 0
    ((count,),) = mariadb.run(f"SELECT COUNT(*) FROM {database}.`we``ird; DROP`")
    assert count > 0
    assert run(*at, "--if-exists", "replace").exit_code == 0
    ((replaced,),) = mariadb.run(f"SELECT COUNT(*) FROM {database}.orders")
    assert replaced == count


def test_a_row_that_something_else_wrote_into_the_target_is_found(
    command: Consumer, mariadb: MariaDb, into: str
) -> None:
    database = into.rpartition("/")[2]
    at = ("shop.orders", "--at", str(EVERYTHING.end_ts), "--into", into)
    assert run(*at).exit_code == 0
    mariadb.run(f"UPDATE {database}.orders SET amount = amount + 1 LIMIT 1")
    mariadb.run("COMMIT")
    assert "differs from what it was" in wrong(*at)


def test_hostile_input_is_refused_and_shows_no_password(
    command: Consumer, mariadb: MariaDb, into: str, tmp_path: Path
) -> None:
    end = ("--at", str(EVERYTHING.end_ts))
    bad = into.replace("secret", "s3cretWrong")
    secret = tmp_path / "url"
    secret.write_text(bad)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    cases = [
        (("shop.orders", *end, "--into", bad), "1045"),
        (("shop.orders", *end, "--into-file", str(secret)), "1045"),
        (("shop.orders", *end, "--into", "mysql://u:s3cretWrong@"), "of the form mysql://"),
        (("shop.orders", *end, "--into", "postgres://u:s3cretWrong@h/d"), "of the form mysql://"),
        (("shop.orders", *end), "--into-file"),
        (("shop.orders", "--at", str(FUTURE), "--into", into), "future"),
        (("shop.orders", "--at", "5", "--into", into), "earliest"),
        (("shop.orders", "--at", "yesterday", "--into", into), "is not a time"),
        (("shop.no_such", *end, "--into", into), "no table shop.no_such"),
        (("mysql.user", *end, "--into", into), "system schema"),
        (("a.b.c", *end, "--into", into), "is not a name"),
        (("shop", *end, "--into", into, "--as", "x"), "several tables"),
        (("*", *end, "--into", into), "names one database"),
        (("shop.orders", *end, "--into", into, "--as", "tistream_restore"), "marks"),
        (("shop.orders", *end, "--into", f"parquet:{tmp_path / 'other'}"), "use an empty directory"),
        (("shop.orders", *end, "--into", "sql:"), "names no directory"),
    ]
    for arguments, expected in cases:
        message = wrong(*arguments)
        assert expected in message, (arguments, message)
        assert "s3cretWrong" not in message
    assert (tmp_path / "other" / "file").read_text() == "x"
    assert not mariadb.run(f"SHOW TABLES FROM {into.rpartition('/')[2]} LIKE 'orders'")


def test_a_tenant_goes_into_databases_of_its_names_with_foreign_keys(command: Consumer, mariadb: MariaDb) -> None:
    for database in databases():
        mariadb.run(f"DROP DATABASE IF EXISTS `{database.replace('`', '``')}`")
    mariadb.run("CREATE OR REPLACE USER restorer@127.0.0.1 IDENTIFIED BY 'p@ss/w:rd'")
    mariadb.run("GRANT ALL ON *.* TO restorer@127.0.0.1")
    target = f"mysql://restorer:p%40ss%2Fw%3Ard@127.0.0.1:{mariadb.port}"
    try:
        message = wrong("*", "--at", str(EVERYTHING.end_ts), "--into", target)
        assert "left out: " in message
        assert "p@ss" not in message
        keys = mariadb.run(
            "SELECT constraint_schema, table_name, referenced_table_name FROM"
            " information_schema.referential_constraints WHERE unique_constraint_schema = constraint_schema"
        )
        assert ("shop", "fk_c", "fk_p") in keys
        counts = dict(
            mariadb.run(
                "SELECT table_schema, COUNT(*) FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND"
                " table_name <> 'tistream_restore' GROUP BY table_schema"
            )
        )
        listed = list(past(command).tables(TableNames()))
        restored = sum(counts.get(database, 0) for database in databases())
        assert restored + message.count(": column") + message.count(": index") == len(listed)
    finally:
        for database in databases():
            mariadb.run(f"DROP DATABASE IF EXISTS `{database.replace('`', '``')}`")
        mariadb.run("DROP USER restorer@127.0.0.1")


class Unsteady(ApiClient):
    """Every second answer with rows breaks off, or is refused for the moment."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._calls = 0

    def chunks(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        self._calls += 1
        whole = b"".join(super().chunks(path, params))
        if self._calls % 4 == 1:
            raise Unavailable(path, 503, {"detail": "busy"}, None if self._calls % 8 == 1 else 7.0)
        if self._calls % 4 == 3:
            yield whole[: len(whole) // 2]
            raise NoAnswer("cut off")
        yield whole[: len(whole) // 3]
        yield whole[len(whole) // 3 :]


def test_answers_that_break_off_are_asked_for_again(command: Consumer, mariadb: MariaDb, into: str) -> None:
    parsed = parse_into(into, None)
    options = RestoreOptions("shop.big", str(EVERYTHING.end_ts), parsed)
    one = Past.at(Unsteady(command.url), "7", "acme", str(EVERYTHING.end_ts))
    pauses: list[float] = []
    restoring = Restoring(one, parsed.open(Dialect.TIDB), options, lambda _: None, pauses.append)
    (table,) = restoring.run(TableNames("shop", "big")).tables
    assert table[1].rows == len(point_world("everything").lines("shop", "big", EVERYTHING.end_ts)) > 4_000
    assert pauses[:2] == [1.0, 1.0]
    ((count, distinct),) = mariadb.run(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM {into.rpartition('/')[2]}.big")
    assert count == distinct == table[1].rows


def test_killed_between_tables_the_same_command_restores_the_rest(
    command: Consumer, mariadb: MariaDb, into: str
) -> None:
    words = [sys.executable, "-m", "tistream_cli", "restore", "shop", "--cluster", "7", "--tenant", "acme"]
    words += ["--at", str(EVERYTHING.end_ts), "--into", into]
    for lines in (1, 4, 9):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline().endswith("equal in the target\n")
        process.kill()
        process.wait()
        process.stdout.close()
    message = wrong("shop", "--at", str(EVERYTHING.end_ts), "--into", into)
    assert "left out: shop." in message
    database = into.rpartition("/")[2]
    for _, name in past(command).tables(TableNames("shop")):
        if f"shop.{name}: " not in message:
            ((count,),) = mariadb.run(f"SELECT COUNT(*) FROM `{database}`.`{name.replace('`', '``')}`")
            assert count == len(point_world("everything").lines("shop", name, EVERYTHING.end_ts))
