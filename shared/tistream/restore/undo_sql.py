"""Builds the SQL statements of an undo. Each statement finds the row by its key and compares the values that the plan
expects. So a statement affects no row if the row has changed since the plan was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tistream.restore.sql_values import equals, literal
from tistream.restore.undo_plan import Reversal
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.tidb.table import Column

# Statements that a session executes first. Foreign keys are not checked, because a cascade would change rows a second
# time: the rows that the undone transaction changed by cascades are part of the plan.
SESSION = (
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION foreign_key_checks = 0",
    "SET NAMES utf8mb4",
)


@dataclass(frozen=True, slots=True)
class Target:
    """The table that the statements change: its name and its current visible columns, by id. `key`: the ids of the
    columns that identify a row in events. It is empty if the table has no key; then all values of a row identify it."""

    name: tuple[str, str]
    columns: Mapping[int, Column]
    key: tuple[int, ...]


def statement(reversal: Reversal, target: Target, dialect: Dialect) -> str:
    """Build the SQL statement of one reversal, which changes exactly one row. If an UPDATE or DELETE matches no row, or
    an INSERT fails because the key exists, the row has changed since the plan was made."""
    place = ".".join(map(quoted_name, target.name))
    if reversal.now is None:
        assert reversal.then is not None
        written = _written(target, reversal.then)
        names = ", ".join(quoted_name(target.columns[column].name) for column in written)
        values = ", ".join(literal(target.columns[column], value) for column, value in written.items())
        return f"INSERT INTO {place} ({names}) VALUES ({values})"
    where = _where(reversal, target, dialect)
    if reversal.then is None:
        return f"DELETE FROM {place} WHERE {where} LIMIT 1"
    changed = {column: reversal.then.get(column) for column in sorted(reversal.changed)}
    sets = ", ".join(
        f"{quoted_name(target.columns[column].name)} = {literal(target.columns[column], value)}"
        for column, value in _written(target, changed).items()
    )
    return f"UPDATE {place} SET {sets} WHERE {where} LIMIT 1"


def _written(target: Target, cells: Mapping[int, Any]) -> dict[int, Any]:
    """The values that a statement may set. Generated columns are left out, because the server computes them."""
    return {column: value for column, value in cells.items() if not target.columns[column].generated}


def _where(reversal: Reversal, target: Target, dialect: Dialect) -> str:
    assert reversal.now is not None
    expected = set(target.key) | reversal.changed if target.key else set(reversal.now)
    return " AND ".join(
        equals(target.columns[column], reversal.now.get(column), dialect)
        for column in target.columns
        if column in expected
    )
