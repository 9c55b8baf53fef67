"""Builds the SQL statements of a backfill by SQL. Pure.

Rows are read in the order of their record keys, which is the order of the columns of the key. Bounds are given as the
values of the key's columns, as text.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.keys import int_handles
from tistream.decode.rows import decode_rows
from tistream.encode.cells import as_number
from tistream.encode.table_encoding import ROWID, KeyForm, TableEncoding
from tistream.model.span import KeySpan
from tistream.schema.tidb.quoting import quoted_name, quoted_text
from tistream.schema.tidb.table import Column

Values = tuple[bytes, ...]

_EMPTY_ROW = bytes([0x80, 0, 0, 0, 0, 0])
_RECORD_PREFIX_BYTES = 11
_HALF = 1 << 63
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_NUMBERS = (Kind.INT, Kind.UINT, Kind.DECIMAL)
SESSION = (
    "SET NAMES utf8mb4",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION sql_mode = ''",
)
TSO = ("BEGIN", "SELECT @@tidb_current_ts", "ROLLBACK")
NEW_COLLATIONS = "SELECT VARIABLE_VALUE FROM mysql.tidb WHERE VARIABLE_NAME = 'new_collation_enabled'"


def snapshot_at(ts: int) -> str:
    """The statement after which every read of the session is as of this ts."""
    return f"SET SESSION tidb_snapshot = '{ts}'"


def table_id_of(database: str, table: str) -> str:
    """The query for the id of a table as of the session's ts."""
    where = f"TABLE_SCHEMA = {quoted_text(database)} AND TABLE_NAME = {quoted_text(table)}"
    return f"SELECT TIDB_TABLE_ID FROM information_schema.TABLES WHERE {where}"


def reorganising(table_id: int) -> str:
    """The query for the DDL jobs that are rewriting a table ("reorganising") as of the session's ts."""
    return f"SELECT job_id FROM mysql.tidb_ddl_job WHERE reorg AND FIND_IN_SET('{table_id}', table_ids) LIMIT 1"


def source_of(database: str, table: str, partition: str | None) -> str:
    """The text that follows FROM: the table, and its partition if one is given."""
    name = f"{quoted_name(database)}.{quoted_name(table)}"
    return name if partition is None else f"{name} PARTITION ({quoted_name(partition)})"


def key_names(encoding: TableEncoding) -> list[str]:
    """The names of the key's columns, quoted; `_tidb_rowid` if the table's rows have no other key."""
    return [quoted_name(column.name) for column in encoding.key] or [ROWID]


def shown(column: Column) -> str:
    """The SQL expression that reads a column in the form that `encode_cells` needs."""
    name = quoted_name(column.name)
    return f"CAST({name} AS UNSIGNED)" if as_number(column) else name


def select_rows(
    encoding: TableEncoding, source: str, low: tuple[Values, bool] | None, high: Values | None, limit: int, *extra: str
) -> str:
    """The query for the first `limit` rows of a range in key order: the columns of the key, the stored columns, then
    the expressions `extra`. source: the text after FROM (source_of). low: a key, and whether the range includes it.
    high: the key at which the range ends, which it does not include. None: the range has no such end."""
    listed = [*key_names(encoding), *(shown(column) for column in encoding.stored), *extra]
    return f"SELECT {', '.join(listed)} FROM {source}{_where(encoding, low, high)}{_order(encoding)} LIMIT {limit}"


def select_cut(encoding: TableEncoding, source: str, low: tuple[Values, bool] | None, step: int) -> str:
    """The query for a key at which to cut a range: that of the row `step` rows after the range's first one. source,
    low: as in select_rows."""
    names = ", ".join(key_names(encoding))
    return f"SELECT {names} FROM {source}{_where(encoding, low, None)}{_order(encoding)} LIMIT 1 OFFSET {step}"


def select_regions(encoding: TableEncoding, source: str) -> str:
    """The query for one key of each Region of a table."""
    return f"SELECT {', '.join(key_names(encoding))} FROM {source} TABLESAMPLE REGIONS(){_order(encoding)}"


def upstream_key(encoding: TableEncoding, database: str, table: str, partition: str | None) -> str:
    """The SQL expression with which the upstream itself computes the record key of a row, in hexadecimal."""
    name = table if partition is None else f"{table}({partition})"
    texts = [quoted_text(database), quoted_text(name), *key_names(encoding)]
    return f"TIDB_ENCODE_RECORD_KEY({', '.join(texts)})"


def bounds_of(encoding: TableEncoding, span: KeySpan) -> tuple[Values | None, Values | None]:
    """Decode the start and the end of a span of record keys to the values of the key's columns; None for a bound that
    has no values, because the table begins or ends there. Raises ValueError if a bound is not a key of the table."""
    return _bound(encoding, span.start), _bound(encoding, span.end)


def ranges_of(encoding: TableEncoding, span: KeySpan) -> list[tuple[Values | None, Values | None]]:
    """Convert a span of record keys to ranges of values, low inclusive and high exclusive, in the order of record keys;
    None: the range has no such bound. There may be two ranges, because record keys hold an unsigned handle as a signed
    integer: 2^63 and above come first. Raises ValueError if a bound is not a key of the table."""
    start, end = bounds_of(encoding, span)
    if encoding.form is not KeyForm.INT or not encoding.key[0].unsigned:
        return [(start, end)]
    low, high = (None if one is None else int(one[0]) for one in (start, end))
    found: list[tuple[Values | None, Values | None]] = []
    if low is None or low >= _HALF:
        found.append((start or (b"%d" % _HALF,), end if high is not None and high >= _HALF else None))
    if high is None or 0 < high < _HALF:
        found.append((start if low is not None and low < _HALF else None, end or (b"%d" % _HALF,)))
    return found


def _bound(encoding: TableEncoding, key: bytes) -> Values | None:
    if len(key) <= _RECORD_PREFIX_BYTES:
        return None
    keys = pa.array([key], pa.binary())
    if not encoding.key:
        handles, there = int_handles(keys)
        if not there[0]:
            raise ValueError("a bound of the plan is no key of this table")
        return (b"%d" % handles[0],)
    decoded = decode_rows(encoding.table, encoding.key, keys, pa.array([_EMPTY_ROW], pa.binary()))
    if decoded.errors:
        raise ValueError("a bound of the plan is no key of this table")
    values = [array[0].as_py() for array in decoded.batch.columns]
    return tuple(one if isinstance(one, bytes) else str(one).encode() for one in values)


def _where(encoding: TableEncoding, low: tuple[Values, bool] | None, high: Values | None) -> str:
    parts = []
    if low is not None:
        parts.append(_beyond(encoding, low[0], ">", equal=low[1]))
    if high is not None:
        parts.append(_beyond(encoding, high, "<", equal=False))
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _beyond(encoding: TableEncoding, values: Values, sign: str, *, equal: bool) -> str:
    """The condition `(a, b) > (x, y)` on the key's columns, written out so that TiDB can read only a range of keys.
    `sign` is `>` or `<`; with `equal` it is `>=` or `<=`."""
    names = key_names(encoding)
    texts = literals(encoding, values)
    found = f"{names[-1]} {sign}{'=' if equal else ''} {texts[-1]}"
    for name, text in zip(reversed(names[:-1]), reversed(texts[:-1]), strict=True):
        found = f"{name} {sign}= {text} AND ({name} {sign} {text} OR ({name} = {text} AND {found}))"
    return f"({found})"


def literals(encoding: TableEncoding, values: Values) -> list[str]:
    """The values of the columns of the key as SQL literals. Raises ValueError if the value of a number column is not a
    number."""
    kinds = [kind_of(column) for column in encoding.key] or [Kind.INT]
    found = []
    for kind, value in zip(kinds, values, strict=True):
        if kind in _NUMBERS:
            if not _NUMBER.fullmatch(value):
                raise ValueError("a bound of the key is not a number")
            found.append(value.decode())
        else:
            found.append(f"X'{value.hex()}'" if kind is Kind.BINARY else quoted_text(value.decode()))
    return found


def _order(encoding: TableEncoding) -> str:
    return f" ORDER BY {', '.join(key_names(encoding))}"


def has_bounds(encoding: TableEncoding) -> bool:
    """Whether a table can be cut into several chunks. That requires that the values of the key can be read from a
    record key."""
    return encoding.form is not KeyForm.UPSTREAM
