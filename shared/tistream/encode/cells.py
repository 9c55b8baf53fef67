"""Encodes the text of one column, as SELECT shows it, into cells of row format v2 (upstream-formats 4.4). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.kernels.arrow_buffers import I64, U8, Bools, FlatBytes, flat_bytes, numbers_of, validity
from tistream.encode.json_binary import json_cell
from tistream.encode.text_kernels import parse_decimals, parse_durations, parse_times
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

NULL = -1
_WORD = 8
_WORD_DIGITS = 9
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_SIGN = np.uint64(1 << 63)
_UNSIGNED_STEPS = (1 << 8, 1 << 16, 1 << 32)
_SIGNED_STEPS = (1 << 7, 1 << 15, 1 << 31)


class NotEncodable(ValueError):
    """Raised if a value does not fit its column's type. The text names the column, and shows no value."""


@dataclass(frozen=True, slots=True)
class TextCells:
    """Encoded cells of one column: that of row i is `data[start[i]:start[i] + length[i]]`. If `length[i]` is the
    constant NULL, row i has no cell.

    words: the values of Kind.INT, UINT, TIME and DURATION as int64, with unsigned ones reinterpreted; None for other
    kinds.
    """

    data: U8
    start: I64
    length: I64
    words: I64 | None = None


def as_number(column: Column) -> bool:
    """Whether a SELECT must cast the column to a number, because TiDB stores a number but SELECT shows a name or
    bytes."""
    return column.tp in (t.BIT, t.ENUM, t.SET)


def encode_cells(column: Column, texts: Any) -> TextCells:
    """Encode the cells of a column.

    Args:
        column: a visible column.
        texts: binary array, null for NULL: the column as SELECT shows it if the session has the time zone UTC and the
            character set utf8mb4. A column for which `as_number` is true has the text of its number.

    Raises:
        NotEncodable: a text does not fit the column's type, or the type is not known.
    """
    kind = kind_of(column)
    encode = _ENCODERS.get(kind)
    if encode is None or (kind is Kind.BINARY and column.tp not in t.TEXTS):
        raise NotEncodable(f"column {column.name}: its type {column.tp:#x} cannot be encoded")
    try:
        return encode(column, texts)
    except (pa.ArrowInvalid, orjson.JSONDecodeError, OverflowError) as error:
        raise _refused(column) from error


def _refused(column: Column) -> NotEncodable:
    return NotEncodable(f"column {column.name}: a value is not of its type {column.tp:#x}")


def _text_of(texts: Any) -> Any:
    return texts.cast(pa.large_binary()).cast(pa.large_string())


def _ints(_: Column, texts: Any) -> TextCells:
    return _signed(numbers_of(_text_of(texts).cast(pa.int64())), validity(texts))


def _uints(_: Column, texts: Any) -> TextCells:
    return _unsigned(numbers_of(_text_of(texts).cast(pa.uint64())), validity(texts))


def _signed(values: npt.NDArray[Any], present: Bools) -> TextCells:
    """Encode each value in the smallest of 1, 2, 4 or 8 little-endian bytes that holds it."""
    length = np.full(len(values), 8, np.int64)
    for size, limit in zip((4, 2, 1), reversed(_SIGNED_STEPS), strict=True):
        length[(values >= -limit) & (values < limit)] = size
    return _words(values.astype(np.int64), length, present)


def _unsigned(values: npt.NDArray[Any], present: Bools) -> TextCells:
    length = np.full(len(values), 8, np.int64)
    for size, limit in zip((4, 2, 1), reversed(_UNSIGNED_STEPS), strict=True):
        length[values < np.uint64(limit)] = size
    return _words(values.astype(np.uint64).view(np.int64), length, present)


def _words(words: I64, length: I64, present: Bools) -> TextCells:
    length[~present] = NULL
    return TextCells(words.view(np.uint8), np.arange(len(words), dtype=np.int64) * _WORD, length, words)


def _floats(column: Column, texts: Any) -> TextCells:
    values = numbers_of(_text_of(texts).cast(pa.float64()))
    if kind_of(column) is Kind.FLOAT:
        values = values.astype(np.float32).astype(np.float64)
    bits = values.view(np.uint64)
    bits = np.where(values >= 0, bits | _SIGN, ~bits).astype(">u8")
    length = np.where(validity(texts), _WORD, NULL)
    return TextCells(bits.view(np.uint8), np.arange(len(bits), dtype=np.int64) * _WORD, length)


def _decimals(column: Column, texts: Any) -> TextCells:
    fraction = max(column.decimal, 0)
    whole = (column.flen if column.flen > 0 else 10) - fraction
    size = 2 + sum(_GROUP_BYTES[digits % _WORD_DIGITS] + digits // _WORD_DIGITS * 4 for digits in (whole, fraction))
    flat, present = flat_bytes(texts), validity(texts)
    out = np.zeros(len(flat) * size, np.uint8)
    if parse_decimals(flat.data, flat.offsets, present, whole, fraction, size, out) >= 0:
        raise _refused(column)
    return TextCells(out, np.arange(len(flat), dtype=np.int64) * size, np.where(present, size, NULL))


def _times(column: Column, texts: Any) -> TextCells:
    words, present = _parsed(column, texts, parse_times)
    return _unsigned(words.view(np.uint64), present)


def _durations(column: Column, texts: Any) -> TextCells:
    return _signed(*_parsed(column, texts, parse_durations))


def _parsed(column: Column, texts: Any, parse: Callable[[U8, I64, Bools, I64], int]) -> tuple[I64, Bools]:
    flat, present = flat_bytes(texts), validity(texts)
    words = np.empty(len(flat), np.int64)
    if parse(flat.data, flat.offsets, present, words) >= 0:
        raise _refused(column)
    return words, present


def _strings(_: Column, texts: Any) -> TextCells:
    return _whole(flat_bytes(texts), validity(texts))


def _whole(flat: FlatBytes, present: Bools) -> TextCells:
    return TextCells(flat.data, flat.offsets[:-1], np.where(present, flat.lengths, NULL))


def _documents(_: Column, texts: Any) -> TextCells:
    """Encode JSON documents. Equal documents are encoded only once, because parsing runs in Python."""
    coded = texts.cast(pa.large_binary()).dictionary_encode()
    cells = pa.array([json_cell(orjson.loads(text)) for text in coded.dictionary.to_pylist()], pa.large_binary())
    return _strings(_, cells.take(coded.indices))


def _vectors(column: Column, texts: Any) -> TextCells:
    """Encode vectors such as `[1,2.5]` as their number of elements and the float32 elements, little-endian."""
    present = validity(texts)
    inner = pc.utf8_trim(pc.fill_null(_text_of(texts), "[]"), characters="[] ")
    parts = pc.split_pattern(inner, ",")
    counts = np.where(pc.equal(inner, "").to_numpy(zero_copy_only=False), 0, pc.list_value_length(parts).to_numpy())
    flat = pc.list_flatten(parts)
    numbers = flat.filter(pc.not_equal(flat, "")).cast(pa.float32()).to_numpy()
    if len(numbers) != counts.sum():
        raise _refused(column)
    start = np.concatenate(([0], np.cumsum(counts + 1)))
    out = np.empty(start[-1], np.uint32)
    heads = np.zeros(len(out), np.bool_)
    heads[start[:-1]] = True
    out[heads] = counts
    out[~heads] = numbers.view(np.uint32)
    return TextCells(out.view(np.uint8), start[:-1] * 4, np.where(present, 4 * (counts + 1), NULL))


_ENCODERS: dict[Kind, Callable[[Column, Any], TextCells]] = {
    Kind.INT: _ints,
    Kind.UINT: _uints,
    Kind.FLOAT: _floats,
    Kind.DOUBLE: _floats,
    Kind.DECIMAL: _decimals,
    Kind.TIME: _times,
    Kind.DURATION: _durations,
    Kind.ENUM: _uints,
    Kind.SET: _uints,
    Kind.TEXT: _strings,
    Kind.BINARY: _strings,
    Kind.JSON: _documents,
    Kind.VECTOR: _vectors,
}
