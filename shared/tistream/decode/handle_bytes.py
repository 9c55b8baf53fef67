"""Encodes a key of an event, such as `{"id":"1"}`, as the handle: the last bytes of the row's raw record key. The
inverse of cells/handle.py. It works for clustered keys of integers, and of strings that are compared by their bytes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.cells.handle import FLAG_BYTES, FLAG_INT, FLAG_UINT
from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.json_text import render_objects
from tistream.schema.tidb import table as t
from tistream.schema.tidb.meta_key import encode_bytes
from tistream.schema.tidb.table import Column, Table

ROWID = "_tidb_rowid"

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_SIGN = 1 << 63
_HALF, _ZERO = bytes(8), _SIGN.to_bytes(8, "big")  # the handles of 2^63 and of 0 in an unsigned primary key
_BY_BYTES = frozenset({"utf8mb4_bin", "utf8_bin", "ascii_bin", "latin1_bin"})
_FLOATS: dict[Kind, type[np.float32 | np.float64]] = {Kind.FLOAT: np.float32, Kind.DOUBLE: np.float64}
_PADDED = 9  # a shorter handle is filled with zero bytes


class NotAKey(ValueError):
    """Raised if the given values are not a key of the table. The text says why."""


def handle_columns(table: Table) -> tuple[Column, ...] | None:
    """The columns from whose values the handle is encoded; empty if the handle is the hidden `_tidb_rowid`. None if the
    handle cannot be computed from the key in an event."""
    if not table.key_columns and not table.is_common_handle and not table.pk_is_handle:
        return ()
    columns = table.handle_columns
    if not columns or columns != table.key_columns or not all(map(_encodable, columns)):
        return None
    primary = next((index for index in table.indexes if index.primary), None)
    if table.is_common_handle and (primary is None or any(part.length != -1 for part in primary.columns)):
        return None
    return columns


def check_names(table: Table, key: Mapping[str, Any], *, prefix: bool = False) -> None:
    """Check that `key` has exactly the key columns of the table; with `prefix`, the first ones of them are enough.
    Raises NotAKey."""
    names = [column.name for column in table.key_columns] or [ROWID]
    most = len(key) if prefix else len(names)
    if len(key) > len(names) or set(key) != set(names[:most]):
        raise NotAKey(f"names the columns {', '.join(key)}; the key of a row is made of {', '.join(names)}")


def handles_of(table: Table, key: Mapping[str, Any]) -> list[bytes]:
    """The handles that a row with this key may have. There are two if a text ends with spaces, because an upstream
    without the new collations stores these spaces. The table's `handle_columns` must not be None. Raises NotAKey."""
    check_names(table, key)
    columns = handle_columns(table)
    assert columns is not None
    if not table.is_common_handle:
        return [_int_handle(columns[0] if columns else None, key)]
    found = [b"".join(_datum(one, key[one.name], trim=trim) for one in columns) for trim in (True, False)]
    return [one.ljust(_PADDED, b"\0") for one in dict.fromkeys(found)]


def handle_bound(table: Table, key: Mapping[str, Any]) -> bytes:
    """The lowest handle that a row whose key is equal to `key` may have. `key` has all columns of the key, or the first
    ones. Two of these bounds make a range of keys: see `handle_spans`. Raises NotAKey."""
    check_names(table, key, prefix=True)
    columns = handle_columns(table)
    assert columns is not None
    if not table.is_common_handle:
        return _int_handle(columns[0] if columns else None, key)
    return b"".join(_datum(one, key[one.name], trim=True) for one in columns[: len(key)])


def handle_spans(table: Table, low: bytes, high: bytes | None) -> list[tuple[bytes, bytes | None]]:
    """The handles `begin <= handle < end` of the rows whose key is at or above the one of `low` and below the one of
    `high`; an `end` of None has no upper bound. `low` and `high` were made by `handle_bound`; empty, or None: without
    this bound. The spans are ascending and disjoint. There may be two, because an unsigned integer handle is stored as
    a signed one: 2^63 and above lie before the smaller ones."""
    found: list[tuple[bytes, bytes | None]] = [(low, high)]
    if (low or high is not None) and _unsigned_handle(table):
        begin = low or _ZERO
        from_small, to_small = begin >= _ZERO, high is not None and high >= _ZERO
        found = [] if to_small else [(_HALF if from_small else begin, _ZERO if high is None else high)]
        if from_small:
            found.append((begin, high if to_small else None))
    return [one for one in found if one[1] is None or one[0] < one[1]]


def key_texts(columns: Sequence[Column], keys: Sequence[Any]) -> Any:
    """Encode the keys of many rows as `key_text` does. Returns a large_string array. `keys` has one array of
    `rows.decode_rows` for each column of the key, at least one."""
    plain = [pc.add(one, pa.scalar(0, one.type)) if pa.types.is_floating(one.type) else one for one in keys]  # -0 to 0
    fields = [pa.field(str(number), one.type) for number, one in enumerate(plain)]
    return render_objects(columns, pa.RecordBatch.from_arrays(plain, schema=pa.schema(fields)))


def key_text(table: Table, key: Mapping[str, Any]) -> str:
    """Encode a key as JSON text, as the member `key` of an event has it, but with 0 for -0. TiDB stores both as the
    same bytes of a key, and a parser of JSON may read -0 as the integer 0. Raises NotAKey."""
    check_names(table, key)
    if not table.key_columns:
        return orjson.dumps({ROWID: str(_integer(ROWID, key[ROWID]))}).decode()
    members = []
    for column in table.key_columns:
        value = key[column.name]
        kind = kind_of(column)
        if kind in _FLOATS:
            members.append(_float_member(column, value))
            continue
        if kind in (Kind.INT, Kind.UINT):
            number = _integer(column.name, value)
            value = str(number) if column.tp in (t.LONGLONG, t.BIT) else number
        members.append(orjson.dumps({column.name: value}).decode()[1:-1])
    return "{" + ",".join(members) + "}"


def _float_member(column: Column, value: Any) -> str:
    """The member of a JSON object for a float column, such as `"c":1e300`. The number has the notation of events, which
    is TiDB's: Python's json would write 1e+300. Raises NotAKey."""
    number: np.float32 | np.float64
    try:
        with np.errstate(over="ignore"):  # a value out of range becomes infinite, which is refused below
            number = _FLOATS[kind_of(column)](float(value))
    except ValueError:
        number = np.float64("nan")
    if not np.isfinite(number):
        raise NotAKey(f"{column.name} {str(value)[:40]!r} is not a number that the column can hold")
    text: str = key_texts([column], [pa.array([number])])[0].as_py()
    return text[1:-1]


def _encodable(column: Column) -> bool:
    kind = kind_of(column)
    if kind is Kind.TEXT:
        return column.tp in t.TEXTS and column.collate in _BY_BYTES
    return (kind in (Kind.INT, Kind.UINT) and column.tp in t.INTEGERS) or kind is Kind.BINARY


def _unsigned_handle(table: Table) -> bool:
    return not table.is_common_handle and any(one.unsigned for one in table.handle_columns[:1])


def _int_handle(column: Column | None, key: Mapping[str, Any]) -> bytes:
    name = ROWID if column is None else column.name
    number = _integer(name, key[name])
    if column is not None and column.unsigned:
        if not 0 <= number < 2 * _SIGN:
            raise NotAKey(f"{name} {number} is no unsigned 64-bit integer")
        return (number ^ _SIGN).to_bytes(8, "big")
    if not -_SIGN <= number < _SIGN:
        raise NotAKey(f"{name} {number} is no 64-bit integer")
    return (number + _SIGN).to_bytes(8, "big")


def _datum(column: Column, value: Any, *, trim: bool) -> bytes:
    kind = kind_of(column)
    if kind is Kind.INT:
        return bytes([FLAG_INT]) + _int_handle(column, {column.name: value})
    if kind is Kind.UINT:
        number = _integer(column.name, value)
        if not 0 <= number < 2 * _SIGN:
            raise NotAKey(f"{column.name} {number} is no unsigned 64-bit integer")
        return bytes([FLAG_UINT]) + number.to_bytes(8, "big")
    if not isinstance(value, str):
        raise NotAKey(f"{column.name} is not a string")
    if kind is Kind.BINARY:
        try:
            return bytes([FLAG_BYTES]) + encode_bytes(base64.b64decode(value, validate=True))
        except binascii.Error as error:
            raise NotAKey(f"{column.name} is not base64: {error}") from error
    return bytes([FLAG_BYTES]) + encode_bytes((value.rstrip(" ") if trim else value).encode())


def _integer(name: str, value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and _INTEGER.fullmatch(value):
        return int(value)
    raise NotAKey(f"{name} {str(value)[:40]!r} is not an integer")
