"""Tables and rows of a real TiDB, written into a real MariaDB by the statements of a restore and of an undo."""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from support import golden
from support.mariadb import MariaDb
from tistream.decode.rows import decode_rows
from tistream.restore.insert_sql import insert_statements
from tistream.restore.sql_values import equals, literal
from tistream.restore.undo_plan import Reversal
from tistream.restore.undo_sql import SESSION, Target, statement
from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect, UnsupportedTable, table_statements
from tistream.schema.visible import TableVersion
from unit.schema.test_golden_history import committed, history

DATABASE = "copy"


@functools.cache
def tables() -> dict[str, TableVersion]:
    """The tables of `everything` at its end that MariaDB can hold, by name."""
    end = golden.load("everything").end_ts
    found = {}
    for database in history("everything").databases(end):
        for listed in history("everything").tables(end, database) or ():
            (table,) = history("everything").tables_named(database, listed.name, end, end + 1)
            version = history("everything").table_at(table.physical_ids[0], end + 1) if table.physical_ids else None
            if version is None:  # a view or a sequence
                continue
            with contextlib.suppress(UnsupportedTable):
                table_statements(version.stored.info(), (DATABASE, listed.name), Dialect.MARIADB)
                found[listed.name] = version
    return found


def rows(version: TableVersion) -> pa.RecordBatch:
    """The table's rows at the end of the set, decoded."""
    newest: dict[bytes, bytes | None] = {}
    prefixes = tuple(b"t" + (one + 2**63).to_bytes(8, "big") + b"_r" for one in version.table.physical_ids)
    for row in committed("everything").iter_rows(named=True):
        if row["key"].startswith(prefixes):
            newest[row["key"]] = row["value"] if row["op"] == 1 else None
    there = sorted((key, value) for key, value in newest.items() if value is not None)
    keys, values = [key for key, _ in there], [value for _, value in there]
    decoded = decode_rows(
        version.table, version.table.visible_columns, pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    )
    assert not decoded.errors
    return decoded.batch


@contextlib.contextmanager
def copies(server: MariaDb) -> Iterator[Any]:
    """A cursor in an empty database."""
    server.run(f"DROP DATABASE IF EXISTS {DATABASE}")
    server.run(f"CREATE DATABASE {DATABASE}")
    with server.connect(DATABASE) as connection, connection.cursor() as cursor:
        for line in SESSION:
            cursor.execute(line)
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
        yield cursor


def create(cursor: Any, name: str, version: TableVersion) -> None:
    cursor.execute(table_statements(version.stored.info(), (DATABASE, name), Dialect.MARIADB).create)


def test_every_table_is_made_with_its_rows_and_selects_as_it_was(mariadb: MariaDb) -> None:
    restored = 0
    with copies(mariadb) as cursor:
        for name, version in tables().items():
            create(cursor, name, version)
            batch = rows(version)
            for insert in insert_statements(batch, version.table.visible_columns, (DATABASE, name), 4096):
                cursor.execute(insert)
            columns = version.table.visible_columns
            cursor.execute("SELECT {} FROM {}".format(*_selected(columns, name)))
            found = sorted((_numbers(columns, row) for row in cursor.fetchall()), key=repr)
            wanted = sorted(zip(*map(_shown, columns, batch.columns), strict=True), key=repr) if columns else []
            assert found == wanted, name
            restored += batch.num_rows
    assert restored > 5_000


def _selected(columns: tuple[t.Column, ...], name: str) -> tuple[str, str]:
    """Columns as text of utf8mb4, and binary ones as hexadecimal digits."""
    shown = []
    for column in columns:
        quoted = f"`{column.name.replace('`', '``')}`"
        if column.binary:
            shown.append(f"HEX({quoted})")
        elif column.tp == t.BIT:
            shown.append(f"CAST({quoted} + 0 AS CHAR)")
        else:
            shown.append(f"CONVERT({quoted} USING utf8mb4)")
    return ", ".join(shown), f"`{name.replace('`', '``')}`"


def _numbers(columns: tuple[t.Column, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
    """FLOAT and DOUBLE as numbers: servers print exponents in different ways."""
    floats = [column.tp in (t.FLOAT, t.DOUBLE) for column in columns]
    return tuple(float(one) if number and one is not None else one for number, one in zip(floats, row, strict=True))


def _shown(column: t.Column, array: pa.Array) -> list[str | float | None]:
    if column.binary:
        return [None if one is None else one.hex().upper() for one in array.to_pylist()]
    if column.tp in (t.FLOAT, t.DOUBLE):
        return [None if one is None else float(str(one)) for one in array.cast(pa.string()).to_pylist()]
    if column.tp == t.YEAR:
        return [None if one is None else f"{one:04d}" for one in array.to_pylist()]
    return [None if one is None else str(one) for one in array.to_pylist()]


def _cells(version: TableVersion, batch: pa.RecordBatch, row: int) -> dict[int, Any]:
    """One row in the form of an event's values, by column id."""
    cells = {}
    for column, array in zip(version.table.visible_columns, batch.columns, strict=True):
        value = array[row].as_py()
        if column.binary and value is not None:
            value = base64.b64encode(value).decode()
        cells[column.id] = value
    return cells


@pytest.mark.parametrize("name", ["orders", "items", "k_enum", "k_ci", "k_bin", "k_none", "old1"])
def test_a_row_is_found_by_its_values_deleted_and_inserted_again(mariadb: MariaDb, name: str) -> None:
    version = tables()[name]
    columns = {column.id: column for column in version.table.visible_columns}
    target = Target((DATABASE, name), columns, tuple(column.id for column in version.table.key_columns))
    batch = rows(version)
    assert batch.num_rows
    with copies(mariadb) as cursor:
        create(cursor, name, version)
        for insert in insert_statements(batch, version.table.visible_columns, (DATABASE, name)):
            cursor.execute(insert)
        cells = _cells(version, batch, 0)
        reversal = Reversal(version.table.id, "row", 1, cells, None, {})
        delete = statement(reversal, target, Dialect.MARIADB)
        assert cursor.execute(delete) == 1
        insert = statement(Reversal(version.table.id, "row", 1, None, cells, {}), target, Dialect.MARIADB)
        assert cursor.execute(insert) == 1
        assert cursor.execute(delete) == 1, "the row that was inserted is not the row that was deleted"


def test_comparisons_tell_values_apart_that_the_collation_holds_for_equal(mariadb: MariaDb) -> None:
    version = tables()["k_ci"]
    (code,) = version.table.key_columns
    with copies(mariadb) as cursor:
        create(cursor, "k_ci", version)
        cursor.execute(f"INSERT INTO k_ci (code, v) VALUES ({literal(code, 'Ab')}, 1)")
        for value, expected in (("Ab", 1), ("ab", 0), ("Ab ", 0)):
            cursor.execute(f"SELECT COUNT(*) FROM k_ci WHERE {equals(code, value, Dialect.MARIADB)}")
            assert cursor.fetchall() == ((expected,),), value


def test_a_row_that_changed_after_the_plan_is_not_touched(mariadb: MariaDb) -> None:
    version = tables()["orders"]
    columns = {column.id: column for column in version.table.visible_columns}
    target = Target((DATABASE, "orders"), columns, tuple(column.id for column in version.table.key_columns))
    batch = rows(version)
    cells = _cells(version, batch, 0)
    amount = next(column.id for column in columns.values() if column.name == "amount")
    undo = statement(
        Reversal(version.table.id, "row", 1, cells, {**cells, amount: "1.00"}, {}), target, Dialect.MARIADB
    )
    with copies(mariadb) as cursor:
        create(cursor, "orders", version)
        for insert in insert_statements(batch, version.table.visible_columns, (DATABASE, "orders")):
            cursor.execute(insert)
        cursor.execute("UPDATE orders SET amount = 77.00")
        assert cursor.execute(undo) == 0
        cursor.execute("SELECT COUNT(*) FROM orders WHERE amount <> 77.00")
        assert cursor.fetchall() == ((0,),)


def test_mariadb_refuses_no_statement_of_foreign_keys(mariadb: MariaDb) -> None:
    info = tables()["fk_c"].stored.info()
    for key in info["fk_info"]:
        key["ref_schema"] = {"O": DATABASE, "L": DATABASE}
    made = table_statements(info, (DATABASE, "fk_c"), Dialect.MARIADB)
    with copies(mariadb) as cursor:
        create(cursor, "fk_p", tables()["fk_p"])
        cursor.execute(made.create)
        assert made.foreign_keys is not None
        cursor.execute(made.foreign_keys)
        cursor.execute("SET SESSION foreign_key_checks = 1")
        with pytest.raises(pymysql.err.IntegrityError):
            cursor.execute("INSERT INTO fk_c (id, pid) VALUES (1, 99)")
