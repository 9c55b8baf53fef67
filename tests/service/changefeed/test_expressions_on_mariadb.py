"""Filter expressions choose the rows that MariaDB chooses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from pymysql.cursors import Cursor
from sqlalchemy.engine import make_url

from support import filter_cases
from support.effort import seeds

ROWS = 300
TOO_LARGE = 1690  # "out of range": the filter uses the exact result


@pytest.fixture(scope="module")
def loaded(mariadb: Any) -> Iterator[tuple[Cursor, list[dict[str, Any]]]]:
    """A connection to a table with random rows, and the rows."""
    url = make_url(mariadb.new_database())
    connection = pymysql.connect(
        host=url.host, port=url.port, user=url.username, password=url.password, database=url.database, charset="utf8mb4"
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
        cursor.execute(
            f"CREATE TABLE t ({', '.join(f'`{name}` {kind}' for name, (kind, _) in filter_cases.DEFINITIONS.items())})"
            " CHARSET utf8mb4"
        )
        rows = filter_cases.rows(0, ROWS)
        names = list(filter_cases.DEFINITIONS)
        cursor.executemany(
            f"INSERT INTO t VALUES ({', '.join(['%s'] * len(names))})", [[row[name] for name in names] for row in rows]
        )
        yield cursor, rows


def chosen(cursor: Cursor, expression: str) -> set[int] | None:
    """The ids of the rows for which the server finds the expression true; None: it stops with "out of range"."""
    try:
        cursor.execute(f"SELECT id FROM t WHERE {expression}")
    except pymysql.err.DatabaseError as error:
        if error.args[0] == TOO_LARGE:
            return None
        raise
    return {row[0] for row in cursor.fetchall()}


def ours(expression: str, rows: list[dict[str, Any]]) -> set[int]:
    return {row["id"] for row, true in zip(rows, filter_cases.true_of(expression, rows), strict=True) if true}


def test_every_expression_chooses_the_rows_that_the_server_chooses(loaded: tuple[Cursor, list[dict[str, Any]]]) -> None:
    cursor, rows = loaded
    compared = 0
    wrong: list[str] = []
    for expression in filter_cases.expressions():
        expected = chosen(cursor, expression)
        if expected is None:
            continue
        found = ours(expression, rows)
        compared += 1
        if found != expected:
            some = next(row for row in rows if row["id"] in found ^ expected)
            wrong.append(
                f"{expression}: {len(found - expected)} too many, {len(expected - found)} missing, such as {some}"
            )
    assert not wrong, "\n".join(wrong)
    assert compared > len(filter_cases.expressions()) - 10


@pytest.mark.parametrize("seed", seeds(3, 200))
def test_random_expressions_choose_the_rows_that_the_server_chooses(
    seed: int, loaded: tuple[Cursor, list[dict[str, Any]]]
) -> None:
    cursor, rows = loaded
    rng = random.Random(seed)
    for _ in range(30):
        expression = filter_cases.random_expression(rng)
        expected = chosen(cursor, expression)
        assert expected is None or ours(expression, rows) == expected, expression
