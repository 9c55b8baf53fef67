"""Describes columns for open-protocol: type, flags, and how values are written. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.decode.cells.kinds import Kind
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import FLAG_PRIMARY, Column, Table
from tistream_changefeed.protocols.members import is_bytes, numbered_kind

_BINARY, _HANDLE, _GENERATED, _PRIMARY, _UNIQUE, _MULTIPLE, _NULLABLE, _UNSIGNED = (1 << bit for bit in range(8))
_TIDB_UNIQUE, _TIDB_MULTIPLE = 4, 8
_IS_HANDLE = '"h":true,'
_BLOBS = frozenset({t.TINYBLOB, t.MEDIUMBLOB, t.LONGBLOB, t.BLOB})

_FORMS = {
    Kind.INT: Form.INT,
    Kind.UINT: Form.UINT,
    Kind.FLOAT: Form.GO_SINGLE,
    Kind.DOUBLE: Form.GO_DOUBLE,
    Kind.DECIMAL: Form.QUOTED,
    Kind.TIME: Form.QUOTED,
    Kind.DURATION: Form.QUOTED,
    Kind.ENUM_NUMBER: Form.UINT,
    Kind.SET_NUMBER: Form.UINT,
    Kind.TEXT: Form.GO_ESCAPED,
    Kind.BINARY: Form.BASE64,
    Kind.JSON: Form.GO_DOCUMENT,
    Kind.VECTOR: Form.QUOTED,
    Kind.NOTHING: Form.QUOTED,
}


def form_of(column: Column, *, faults: bool) -> Form:
    """How a column's values are written. TEXT and BLOB are base64; BINARY and VARBINARY are quoted as Go does.
    `faults`: treat CHAR and VARCHAR with the attribute BINARY as byte strings too, as TiCDC does by mistake."""
    if column.tp in _BLOBS:
        return Form.BASE64
    if column.tp in t.TEXTS and is_bytes(column, faults=faults):
        return Form.GO_QUOTED
    return _FORMS[numbered_kind(column)]


def describe(column: Column, flags: int, *, handle: bool) -> str:
    """The JSON members of a column that come before its value: type, whether it is in the handle key, flags."""
    return f'"t":{column.tp},{_IS_HANDLE if handle else ""}"f":{flags},"v":'


def flags_of(table: Table, handle: Sequence[Column]) -> dict[int, int]:
    """The flags `f` of each column, by its id: 1 charset binary, 2 handle key, 4 generated, 8 primary key, 16 unique,
    32 in an index of several columns, 64 nullable, 128 unsigned."""
    flags = {column.id: _own(table, column) for column in table.columns}
    handle_ids = {column.id for column in handle}
    for index in table.indexes:
        if not index.public:
            continue
        for part in index.columns:
            column = table.columns[part.offset]
            if column.generated:
                continue
            kind = _PRIMARY if index.primary else _UNIQUE if index.unique else 0
            several = _MULTIPLE if len(index.columns) > 1 else 0
            flags[column.id] |= kind | several | (_HANDLE if column.id in handle_ids else 0)
    return flags


def _own(table: Table, column: Column) -> int:
    primary = bool(column.flag & FLAG_PRIMARY)
    flags = (
        (column.charset == "binary", _BINARY),
        (primary and table.pk_is_handle, _HANDLE),
        (column.generated, _GENERATED),
        (primary, _PRIMARY),
        (bool(column.flag & _TIDB_UNIQUE), _UNIQUE),
        (bool(column.flag & _TIDB_MULTIPLE), _MULTIPLE),
        (not column.not_null, _NULLABLE),
        (column.unsigned, _UNSIGNED),
    )
    return sum(flag for holds, flag in flags if holds)
