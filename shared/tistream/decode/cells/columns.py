"""Decodes the cells of one column, which are its encoded values in row values, to an Arrow array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.cells.decimal_cells import FRACTION_MAX, TEXT_MAX, decode_decimals
from tistream.decode.cells.json_cells import EXPANSION, SLACK, decode_json, decode_vectors
from tistream.decode.cells.kinds import Kind, date_only, fsp_of
from tistream.decode.cells.number_cells import decode_doubles, decode_integers
from tistream.decode.cells.reasons import BAD_SET
from tistream.decode.cells.string_cells import count_not_utf8, elements_length, gather_bytes, is_ascii, put_elements
from tistream.decode.cells.time_cells import DATETIME_CHARS, DURATION_CHARS, put_durations, put_times
from tistream.decode.kernels.arrow_buffers import I64, U8, Bools, binary_array, flat_bytes, number_array
from tistream.decode.kernels.text_io import PLAIN_SINGLE_CHARS
from tistream.schema.tidb.table import Column

_SET_MAX = 64  # elements of a SET, which is stored as the bits of an integer


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one column: that of row i is `data[start[i]:start[i] + length[i]]`. A negative length means that the
    row has no cell.

    `errors` has one element for each row, and all columns of a batch share it. A kernel writes the reason code of an
    invalid cell there.
    """

    data: U8
    start: I64
    length: I64
    errors: U8

    def __len__(self) -> int:
        return len(self.start)

    @property
    def bytes(self) -> int:
        return int(np.maximum(self.length, 0).sum())


def decode_cells(column: Column, kind: Kind, cells: Cells) -> Any:
    """Decode a column to an Arrow array of the type `kinds.arrow_type(kind)`. A row whose cell is missing or invalid is
    null."""
    return _DECODERS[kind](column, cells)


def integer_bits(cells: Cells, *, unsigned: bool) -> tuple[I64, Bools]:
    """Decode cells of integers. Returns (values as int64, with unsigned ones reinterpreted; which rows have a
    value)."""
    out = np.empty(len(cells), np.int64)
    valid = np.empty(len(cells), np.bool_)
    decode_integers(cells.data, cells.start, cells.length, unsigned, out, valid, cells.errors)
    return out, valid


def _ints(_: Column, cells: Cells) -> Any:
    return number_array(*integer_bits(cells, unsigned=False))


def _uints(_: Column, cells: Cells) -> Any:
    bits, valid = integer_bits(cells, unsigned=True)
    return number_array(bits.view(np.uint64), valid)


def _doubles(_: Column, cells: Cells) -> Any:
    bits, valid = _double_bits(cells)
    return number_array(bits.view(np.float64), valid)


def _floats(_: Column, cells: Cells) -> Any:
    bits, valid = _double_bits(cells)
    with np.errstate(over="ignore", invalid="ignore"):
        return number_array(bits.view(np.float64).astype(np.float32), valid)


def _double_bits(cells: Cells) -> tuple[I64, Bools]:
    out = np.empty(len(cells), np.int64)
    valid = np.empty(len(cells), np.bool_)
    decode_doubles(cells.data, cells.start, cells.length, out, valid, cells.errors)
    return out, valid


def _text(capacity: int, rows: int, fill: Callable[[U8, I64, Bools], None]) -> Any:
    """Build an Arrow array of texts. `fill` is a kernel that writes the texts end to end, their offsets, and which rows
    have one. `capacity`: the bytes that the texts may need."""
    out = np.empty(capacity, np.uint8)
    offsets = np.empty(rows + 1, np.int64)
    valid = np.empty(rows, np.bool_)
    fill(out, offsets, valid)
    return binary_array(out[: offsets[-1]], offsets, valid, text=True)


def _decimals(column: Column, cells: Cells) -> Any:
    scale = min(max(column.decimal, -1), FRACTION_MAX)

    def fill(out: U8, offsets: I64, valid: Bools) -> None:
        decode_decimals(cells.data, cells.start, cells.length, scale, out, offsets, valid, cells.errors)

    return _text(len(cells) * TEXT_MAX, len(cells), fill)


def _times(column: Column, cells: Cells) -> Any:
    packed, present = integer_bits(cells, unsigned=True)

    def fill(out: U8, offsets: I64, valid: Bools) -> None:
        put_times(packed, present, fsp_of(column), date_only(column), out, offsets, valid, cells.errors)

    return _text(len(cells) * DATETIME_CHARS, len(cells), fill)


def _durations(column: Column, cells: Cells) -> Any:
    nanos, present = integer_bits(cells, unsigned=False)

    def fill(out: U8, offsets: I64, valid: Bools) -> None:
        put_durations(nanos, present, fsp_of(column), out, offsets, valid, cells.errors)

    return _text(len(cells) * DURATION_CHARS, len(cells), fill)


def _elements(column: Column, cells: Cells, *, is_set: bool) -> Any:
    indexes, present = integer_bits(cells, unsigned=True)
    names = flat_bytes(pa.array(list(column.elems[:_SET_MAX] if is_set else column.elems), pa.large_string()))
    valid = np.empty(len(cells), np.bool_)
    size = elements_length(indexes, present, is_set, names.offsets, valid, cells.errors)
    out = np.empty(size, np.uint8)
    offsets = np.empty(len(cells) + 1, np.int64)
    put_elements(indexes, valid, is_set, names.data, names.offsets, out, offsets)
    return binary_array(out[: offsets[-1]], offsets, valid, text=True)


def _enum_numbers(column: Column, cells: Cells) -> Any:
    numbers, present = integer_bits(cells, unsigned=True)
    known = (numbers > 0) & (numbers <= len(column.elems))
    return number_array(np.where(known, numbers, 0).view(np.uint64), present)


def _set_numbers(column: Column, cells: Cells) -> Any:
    bits, present = integer_bits(cells, unsigned=True)
    if len(column.elems) < _SET_MAX:
        bad = present & ((bits < 0) | (bits >> len(column.elems) != 0))
        # As when names are decoded: whether a row is decodable does not depend on the requested form.
        cells.errors[bad] = BAD_SET
        present &= ~bad
    return number_array(bits.view(np.uint64), present)


def _enums(column: Column, cells: Cells) -> Any:
    return _elements(column, cells, is_set=False)


def _sets(column: Column, cells: Cells) -> Any:
    return _elements(column, cells, is_set=True)


def _strings(_: Column, cells: Cells) -> Any:
    return utf8_array(*_gathered(cells))


def _blobs(_: Column, cells: Cells) -> Any:
    return binary_array(*_gathered(cells), text=False)


def _gathered(cells: Cells) -> tuple[U8, I64, Bools]:
    out = np.empty(cells.bytes, np.uint8)
    offsets = np.empty(len(cells) + 1, np.int64)
    valid = np.empty(len(cells), np.bool_)
    gather_bytes(cells.data, cells.start, cells.length, out, offsets, valid)
    return out, offsets, valid


def _documents(_: Column, cells: Cells) -> Any:
    out = np.empty(EXPANSION * cells.bytes + SLACK * len(cells), np.uint8)
    offsets = np.empty(len(cells) + 1, np.int64)
    valid = np.empty(len(cells), np.bool_)
    decode_json(cells.data, cells.start, cells.length, out, offsets, valid, cells.errors)
    return utf8_array(out[: offsets[-1]], offsets, valid)


def _vectors(_: Column, cells: Cells) -> Any:
    def fill(out: U8, offsets: I64, valid: Bools) -> None:
        decode_vectors(cells.data, cells.start, cells.length, out, offsets, valid, cells.errors)

    return _text((cells.bytes // 4 + 1) * (PLAIN_SINGLE_CHARS + 1) + 2 * len(cells), len(cells), fill)


def _nothing(_: Column, cells: Cells) -> Any:
    return pa.nulls(len(cells), pa.large_string())


def utf8_array(data: U8, offsets: I64, valid: Bools | None) -> Any:
    """Build a large_string array from byte strings. Bytes that are not valid UTF-8 are replaced by U+FFFD."""
    bad = np.empty(len(offsets) - 1, np.bool_)
    if is_ascii(data) or count_not_utf8(data, offsets, bad) == 0:
        return binary_array(data, offsets, valid, text=True)
    texts = [data[offsets[row] : offsets[row + 1]].tobytes().decode("utf-8", "replace") for row in np.flatnonzero(bad)]
    fixed = pa.array([text.encode() for text in texts], pa.large_binary())
    raw = binary_array(data, offsets, valid, text=False)
    return pc.replace_with_mask(raw, pa.array(bad), fixed).cast(pa.large_string())


_DECODERS: dict[Kind, Callable[[Column, Cells], Any]] = {
    Kind.INT: _ints,
    Kind.UINT: _uints,
    Kind.FLOAT: _floats,
    Kind.DOUBLE: _doubles,
    Kind.DECIMAL: _decimals,
    Kind.TIME: _times,
    Kind.DURATION: _durations,
    Kind.ENUM: _enums,
    Kind.SET: _sets,
    Kind.TEXT: _strings,
    Kind.BINARY: _blobs,
    Kind.JSON: _documents,
    Kind.VECTOR: _vectors,
    Kind.NOTHING: _nothing,
    Kind.ENUM_NUMBER: _enum_numbers,
    Kind.SET_NUMBER: _set_numbers,
}
