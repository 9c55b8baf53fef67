"""SQL of an undo, and of values: literals that give the same value, comparisons that are exact."""

from __future__ import annotations

from typing import Any

import pytest

from support.schema_records import column, table_info
from tistream.restore.sql_values import equals, literal
from tistream.restore.undo_plan import Reversal
from tistream.restore.undo_sql import Target, statement
from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.table import Column, parse_table


def one(tp: int, **more: Any) -> Column:
    charset = more.pop("charset", None)
    info = column(1, "c", tp=tp, **more)
    if charset is not None:
        info["type"]["Charset"] = charset
    return parse_table(table_info(7, "t", [info])).columns[0]


@pytest.mark.parametrize(
    ("of", "value", "text"),
    [
        (one(t.LONGLONG), "18446744073709551615", "18446744073709551615"),
        (one(t.LONG), -5, "-5"),
        (one(t.BIT), "5", "b'101'"),
        (one(t.DOUBLE), 1.5, "1.5e0"),
        (one(t.DOUBLE), 1e300, "1e+300"),
        (one(t.FLOAT), 0.1, "0.1e0"),
        (one(t.DECIMAL), "-12.340", "-12.340"),
        (one(t.DATETIME), "0000-00-00 00:00:00", "'0000-00-00 00:00:00'"),
        (one(t.DURATION), "-10:00:00.500", "'-10:00:00.500'"),
        (one(t.VARCHAR, charset="utf8mb4"), "it's \\", "'it''s \\\\'"),
        (one(t.VARCHAR, charset="binary"), "AP8=", "X'00ff'"),
        (one(t.BLOB, charset="binary"), "", "X''"),
        (one(t.JSON), {"a": [1, "b'"]}, "'{\"a\":[1,\"b''\"]}'"),
        (one(t.VECTOR), [1, 2.5], "'[1,2.5]'"),
        (one(t.VECTOR), [3.2e-05, 3.4028235e38, -1e20], f"'[0.000032,34028235{'0' * 31},-1{'0' * 20}]'"),
        (one(t.ENUM, charset="utf8mb4"), "y", "'y'"),
        (one(t.VARCHAR, charset="utf8mb4"), None, "NULL"),
    ],
)
def test_literals(of: Column, value: Any, text: str) -> None:
    assert literal(of, value) == text


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (one(t.LONG), "1; DROP TABLE t"),
        (one(t.DECIMAL), "1 OR 1=1"),
        (one(t.DOUBLE), float("nan")),
        (one(t.VARCHAR, charset="binary"), "not base64!"),
        (one(t.VARCHAR, charset="utf8mb4"), 5),
        (one(t.GEOMETRY), "x"),
        (one(t.BIT), True),
    ],
)
def test_a_value_that_the_column_cannot_have_is_refused_without_showing_it(of: Column, value: Any) -> None:
    with pytest.raises(ValueError, match="column c cannot have the given value") as refused:
        literal(of, value)
    assert str(value) not in str(refused.value)


@pytest.mark.parametrize(
    ("of", "value", "tidb", "mariadb"),
    [
        (one(t.LONG), 5, "`c` <=> 5", "`c` <=> 5"),
        (one(t.LONG), None, "`c` IS NULL", "`c` IS NULL"),
        (one(t.VARCHAR, charset="gbk"), "A", "HEX(CONVERT(`c` USING utf8mb4)) <=> '41'", None),
        (one(t.STRING, charset="binary"), "AP8=", "HEX(`c`) <=> '00FF'", None),
        (one(t.JSON), [1], "`c` <=> CAST('[1]' AS JSON)", "JSON_EQUALS(`c`, '[1]')"),
        (one(t.FLOAT), 0.1, "`c` <=> CAST(0.1e0 AS FLOAT)", None),
        (one(t.BIT), "5", "`c` + 0 <=> b'101' + 0", None),
    ],
)
def test_comparisons(of: Column, value: Any, tidb: str, mariadb: str | None) -> None:
    assert equals(of, value, Dialect.TIDB) == tidb
    assert equals(of, value, Dialect.MARIADB) == (mariadb or tidb)


TABLE = parse_table(
    table_info(
        7,
        "t",
        [
            column(1, "id"),
            column(2, "a"),
            column(3, "b"),
            column(4, "sum", generated_expr_string="`a` + `b`", generated_stored=True),
        ],
    )
)
TARGET = Target(("d", "t"), {one.id: one for one in TABLE.columns}, (1,))
NO_KEY = Target(("d", "t"), TARGET.columns, ())
ROW, THEN = {1: 9, 2: 5, 3: 6, 4: 11}, {1: 9, 2: 4, 3: 6, 4: 10}


def sql(now: Any, then: Any, target: Target = TARGET) -> str:
    return statement(Reversal(7, "9", 10, now, then, {}), target, Dialect.TIDB)


def test_an_update_names_the_key_and_what_it_expects_and_leaves_generated_columns_to_the_server() -> None:
    assert sql(ROW, THEN) == "UPDATE `d`.`t` SET `a` = 4 WHERE `id` <=> 9 AND `a` <=> 5 AND `sum` <=> 11 LIMIT 1"


def test_a_delete_expects_the_whole_row() -> None:
    assert sql(ROW, None) == "DELETE FROM `d`.`t` WHERE `id` <=> 9 AND `a` <=> 5 AND `b` <=> 6 AND `sum` <=> 11 LIMIT 1"


def test_an_insert_writes_all_but_generated_columns() -> None:
    assert sql(None, THEN) == "INSERT INTO `d`.`t` (`id`, `a`, `b`) VALUES (9, 4, 6)"


def test_a_row_without_a_key_is_named_by_all_of_its_values() -> None:
    where = "`id` <=> 9 AND `a` <=> 5 AND `b` <=> 6 AND `sum` <=> 11"
    assert sql(ROW, THEN, NO_KEY) == f"UPDATE `d`.`t` SET `a` = 4 WHERE {where} LIMIT 1"
