"""Builds the SQL statements that write a net change. Pure.

Deletes come before puts. In a window that may be a repeat (`safe`), REPLACE also removes rows that have a unique value
of the new row: they are rows of the same window, and their own change follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.restore.insert_sql import insert_statements, literals
from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.tidb.table import Column
from tistream.schema.visible import Name
from tistream_changefeed.rows.net import TableNet

DELETES = 500  # rows of one DELETE: a server scans the table if the list of keys is very long
_NAMED = (t.ENUM, t.SET)


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement, the table that it changes, and the number of rows that it must match; None: any number."""

    table: Name
    sql: str
    rows: int | None = None
    zeros: int = 0  # of its ENUM values; the server must warn of each, and of nothing else


def statements(nets: Sequence[TableNet], dialect: Dialect, *, safe: bool) -> Iterator[Statement]:
    """The statements of one transaction: the deletes of all tables, then their puts. `safe`: puts are REPLACE."""
    for one in nets:
        yield from _deletes(one, dialect)
    for one in nets:
        yield from _puts(one, safe=safe)


def _puts(one: TableNet, *, safe: bool) -> Iterator[Statement]:
    name = one.version.name
    verb = "REPLACE" if safe and one.handle else "INSERT"
    sets = [f"{quoted_name(column.name)} = VALUES({quoted_name(column.name)})" for column in _written(one)]
    suffix = "" if verb == "REPLACE" or not sets else f"\nON DUPLICATE KEY UPDATE {', '.join(sets)}"
    for rows, end in ((one.updates, suffix), (one.inserts, "")):
        zeros = _zeros(one, rows)
        plain = rows.filter(pa.array(zeros == 0)) if zeros.any() else rows
        for sql in insert_statements(plain, one.columns, name, verb=verb, suffix=end):
            yield Statement(name, sql)
        for at in np.flatnonzero(zeros).tolist():
            for sql in insert_statements(rows.slice(at, 1), one.columns, name, verb=verb, suffix=end):
                yield Statement(name, sql, zeros=int(zeros[at]))


def _zeros(one: TableNet, rows: pa.RecordBatch) -> Int64s:
    """For each row, how many of its ENUM values are 0. MySQL stores 0 for a text that is not a member of the ENUM;
    SELECT shows it as ''."""
    out = np.zeros(rows.num_rows, np.int64)
    for at, column in enumerate(one.columns):
        if column.tp == t.ENUM and "" not in column.elems:
            out += pc.fill_null(pc.equal(rows.column(at), ""), False).to_numpy(zero_copy_only=False)
    return out


def _written(one: TableNet) -> list[Column]:
    return [column for column in one.columns if not column.generated]


def _deletes(one: TableNet, dialect: Dialect) -> Iterator[Statement]:
    if not one.deletes.num_rows:
        return
    name = one.version.name
    head = f"DELETE FROM {'.'.join(map(quoted_name, name))} WHERE "
    if not one.handle:  # of equal rows each is one row
        conditions = [_same(column, one.deletes.column(at), dialect) for at, column in enumerate(one.columns)
                      if not column.generated]  # fmt: skip
        for text in _joined(conditions, " AND "):
            yield Statement(name, f"{head}{text} LIMIT 1", 1)
        return
    columns = [(column, _key(column, one.deletes.column(one.columns.index(column)))) for column in one.handle]
    if len(columns) == 1:
        [(column, values)] = columns
        for start in range(0, len(values), DELETES):
            yield Statement(name, f"{head}{quoted_name(column.name)} IN ({','.join(values[start : start + DELETES])})")
        return
    rows = _joined([_prefixed(f"{quoted_name(column.name)} = ", values) for column, values in columns], " AND ")
    for start in range(0, len(rows), DELETES):
        yield Statement(name, head + " OR ".join(f"({one})" for one in rows[start : start + DELETES]))


def _key(column: Column, array: pa.Array) -> pl.Series:
    """The values of a key's column as literals that are compared exactly. A DECIMAL that is quoted would be compared as
    a DOUBLE; a FLOAT is compared with the FLOAT that is nearest."""
    if column.tp == t.DECIMAL:
        return pl.Series(pl.from_arrow(array))
    if column.tp == t.FLOAT:
        return _wrapped("CAST({} AS FLOAT)", literals(array))
    return literals(array)


def _same(column: Column, array: pa.Array, dialect: Dialect) -> pl.Series:
    """For each value, the condition that a row has exactly this value in the column. NULL equals NULL. Texts are
    compared character by character, whatever the collation."""
    name = quoted_name(column.name)
    if column.tp in t.TEXTS or column.tp in _NAMED:
        values = pl.Series(pl.from_arrow(array)).cast(pl.Binary).bin.encode("hex").str.to_uppercase()
        held = f"HEX({name})" if column.binary else f"HEX(CONVERT({name} USING utf8mb4))"
        return _prefixed(f"{held} <=> ", _wrapped("'{}'", values).fill_null("NULL"))
    values = _key(column, array)
    if column.tp == t.JSON:
        before, after = (
            (f"JSON_EQUALS({name}, ", ")") if dialect is Dialect.MARIADB else (f"{name} = CAST(", " AS JSON)")
        )
        exact = pl.select(pl.lit(before) + pl.lit(values) + pl.lit(after)).to_series()
        null = pl.Series(pl.from_arrow(array)).is_null()
        return pl.select(pl.when(pl.lit(null)).then(pl.lit(f"{name} IS NULL")).otherwise(pl.lit(exact))).to_series()
    return _prefixed(f"{name} <=> ", values.fill_null("NULL"))


def _wrapped(form: str, values: pl.Series) -> pl.Series:
    before, after = form.split("{}")
    return pl.select(pl.lit(before) + pl.lit(values) + pl.lit(after)).to_series()


def _prefixed(prefix: str, values: pl.Series) -> pl.Series:
    return pl.select(pl.lit(prefix) + pl.lit(values)).to_series()


def _joined(parts: Sequence[pl.Series], separator: str) -> pl.Series:
    frame = pl.DataFrame([one.alias(str(number)) for number, one in enumerate(parts)])
    return frame.select(pl.concat_str(pl.all(), separator=separator)).to_series()
