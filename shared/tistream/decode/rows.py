"""Decodes the rows of one table version to Arrow: raw keys and row values become one typed array per column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.cells.columns import Cells, decode_cells, integer_bits
from tistream.decode.cells.defaults import origin_default
from tistream.decode.cells.handle import locate_handle
from tistream.decode.cells.kinds import Kind, arrow_type, handle_flag, kind_of
from tistream.decode.cells.locate import ABSENT, NULL, V2, locate
from tistream.decode.cells.reasons import BAD_DEFAULT, BAD_KEY, reason_text
from tistream.decode.kernels.arrow_buffers import I64, U8, FlatBytes, flat_bytes, number_array, one_array, validity
from tistream.decode.keys import int_handles
from tistream.schema.tidb.table import Column, Table

_PAGE_WORDS, _LINE_WORDS = 512, 8


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of `decode_rows`.

    `batch` has one field for each requested column, in order; its name is its position. The types are int64, uint64,
    float32, float64, large_binary, or large_string (text, and JSON text of JSON and VECTOR). `errors` maps the index of
    each undecodable row to the reason. Such a row is null in every column.
    """

    batch: Any  # pa.RecordBatch
    errors: dict[int, str]


def decode_rows(table: Table, columns: Sequence[Column], keys: Any, values: Any, *, numbered: bool = False) -> Decoded:
    """Decode row values of any version of the row format.

    Args:
        table: the table version that the rows are decoded with.
        columns: the columns to decode.
        keys: raw record keys (`t{id}_r{handle}`), a binary array.
        values: row values, a binary array of the same length. A null value means that there is no row, and gives null
            in every column.
        numbered: decode ENUM and SET to their numbers (uint64), not to the names of their elements.

    A row that cannot be decoded is null in every column, and its reason is in the result. Raises ValueError if the
    lengths differ.
    """
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
    values = one_array(values)
    located = _Located.of(table, columns, one_array(keys), flat_bytes(values))
    if values.null_count:
        located.row_errors[~validity(values)] = 0
    arrays = []
    blame: dict[int, tuple[int, str | None]] = {}
    _move_errors(located.row_errors, blame, None)
    for column in columns:
        arrays.append(_decode_column(table, column, located, keys, numbered=numbered))
        _move_errors(located.errors, blame, column.name)
    fields = [pa.field(str(place), array.type) for place, array in enumerate(arrays)]
    if blame:
        bad = np.zeros(len(keys), np.bool_)
        bad[list(blame)] = True
        arrays = [pc.if_else(pa.array(bad), pa.scalar(None, array.type), array) for array in arrays]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)) if fields else _no_columns(len(keys))
    return Decoded(batch, {row: reason_text(*blame[row]) for row in sorted(blame)})


@dataclass(slots=True)
class _Located:
    """Where the cells of all requested columns are, and the errors of rows whose cells could not be found."""

    cells: dict[int, Cells]  # by column id
    row_errors: U8
    errors: U8  # written by the kernel of the column that is being decoded

    @classmethod
    def of(cls, table: Table, columns: Sequence[Column], keys: Any, values: FlatBytes) -> _Located:
        wanted = np.array(sorted({column.id for column in columns}), np.int64)
        rows = len(values)
        start, length = np.empty((2, len(wanted), _padded(rows)), np.int64)
        errors = np.zeros(rows, np.uint8)
        flat_keys = flat_bytes(keys)
        v1_bytes = _bytes_of_v1(values)
        room = 2 * v1_bytes + (len(flat_keys.data) if table.is_common_handle else 0)
        scratch = np.empty(room, np.uint8)
        used = locate(values.data, values.offsets, wanted, scratch, start, length, errors)
        if table.is_common_handle:
            used = _locate_handle(table, wanted, flat_keys, scratch, used, len(values.data), start, length, errors)
        data = values.data
        if used:
            data = np.concatenate([data, scratch[:used]])
            data.flags.writeable = False
        fresh = np.zeros(rows, np.uint8)
        cells = {int(id_): Cells(data, start[at, :rows], length[at, :rows], fresh) for at, id_ in enumerate(wanted)}
        return cls(cells, errors, fresh)


def _padded(rows: int) -> int:
    """The number of elements that one column gets in the arrays `start` and `length`, for this many rows: a multiple of
    a page, plus 64 bytes.

    The kernel writes all columns of one table row in turn. If the columns were a multiple of 4 KiB apart, as 65,536
    rows are, all of them would map to the same few cache lines.
    """
    return rows if rows < _PAGE_WORDS else rows + (_LINE_WORDS - rows) % _PAGE_WORDS


def _move_errors(errors: U8, blame: dict[int, tuple[int, str | None]], column: str | None) -> None:
    """Move error codes from `errors` to `blame`, which keeps the first error of each row with the name of its column.
    `column` is the column that was just decoded, or None if the errors concern whole rows."""
    if errors.any():
        for row in np.flatnonzero(errors):
            blame.setdefault(int(row), (int(errors[row]), column))
        errors[:] = 0


def _bytes_of_v1(values: FlatBytes) -> int:
    """The total bytes of the rows in format v1. Scratch space is needed for their cells."""
    starts = values.offsets[:-1]
    lengths = values.lengths
    if len(values.data) == 0:
        return 0
    first = values.data.take(starts, mode="clip")
    return int(lengths[first != V2].sum())


def _locate_handle(
    table: Table,
    wanted: I64,
    keys: FlatBytes,
    scratch: U8,
    used: int,
    base: int,
    start: I64,
    length: I64,
    errors: U8,
) -> int:
    handle = table.handle_columns
    flags = np.array([handle_flag(kind_of(column)) for column in handle], np.int64)
    places = [int(np.searchsorted(wanted, column.id)) for column in handle]
    found = [
        place if place < len(wanted) and wanted[place] == column.id else -1
        for place, column in zip(places, handle, strict=True)
    ]
    columns = np.array(found, np.int64)
    return locate_handle(keys.data, keys.offsets, flags, columns, scratch, used, base, start, length, errors)


def _decode_column(table: Table, column: Column, located: _Located, keys: Any, *, numbered: bool) -> Any:
    cells = located.cells[column.id]
    kind = kind_of(column, numbered=numbered)
    if table.pk_is_handle and column in table.handle_columns:
        return _int_handle_column(kind, cells, keys)
    array = decode_cells(column, kind, cells)
    absent = cells.length == ABSENT
    if not absent.any():
        return array
    try:
        default = origin_default(column, numbered=numbered)
        filling = pa.scalar(default, arrow_type(kind))
    except (ValueError, pa.ArrowInvalid, OverflowError):
        located.errors[absent] = BAD_DEFAULT
        return array
    return array if default is None else pc.if_else(pa.array(absent), filling, array)


def _int_handle_column(kind: Kind, cells: Cells, keys: Any) -> Any:
    """The column of an integer primary key. Its value is in the row value if that has the cell, otherwise in the record
    key."""
    handles, has_handle = int_handles(keys)
    absent = cells.length == ABSENT
    valid = absent & has_handle
    cells.errors[absent & ~has_handle] = BAD_KEY
    if not absent.all():
        unsigned = kind is Kind.UINT
        bits, stored = integer_bits(replace(cells, length=np.where(absent, NULL, cells.length)), unsigned=unsigned)
        handles = np.where(stored, bits, handles)
        valid |= stored
    return number_array(handles.view(np.uint64) if kind is Kind.UINT else handles, valid)


def _no_columns(rows: int) -> Any:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
