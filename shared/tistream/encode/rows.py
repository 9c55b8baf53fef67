"""Encodes the rows of one table version from SQL text: raw record keys and row values of format v2. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tistream.decode.cells.handle import FLAG_BYTES
from tistream.decode.cells.kinds import Kind, handle_flag, kind_of
from tistream.decode.kernels.arrow_buffers import I64, U8, binary_array
from tistream.encode.cells import NotEncodable, TextCells, encode_cells
from tistream.encode.join_kernels import grouped_ends, key_ends, put_groups, put_keys, put_rows, row_ends
from tistream.encode.table_encoding import KeyForm, TableEncoding
from tistream.schema.tidb.table import Column

_SIGN = 1 << 63
_SHORTEST_HANDLE = 9


def encode_values(encoding: TableEncoding, texts: Mapping[int, Any], rows: int) -> Any:
    """Encode row values, large_binary[rows]. `texts` has, by the id of each stored column, an array as `encode_cells`
    needs it. Raises NotEncodable."""
    stored = encoding.stored
    cells = [encode_cells(column, texts[column.id]) for column in stored]
    ids = np.array([column.id for column in stored], np.int64)
    data, start, length = _beside(cells, rows)
    offsets = np.empty(rows + 1, np.int64)
    row_ends(ids, length, offsets)
    out = np.empty(offsets[-1], np.uint8)
    put_rows(ids, data, start, length, offsets, out)
    return binary_array(out, offsets, None, text=False)


def encode_keys(encoding: TableEncoding, physical_id: int, texts: Sequence[Any], rows: int) -> Any:
    """Encode the raw record keys of a physical id, large_binary[rows].

    texts: the columns of the key as SELECT shows them, in key order; for KeyForm.ROWID, the column `_tidb_rowid`.
    Tables with KeyForm.UPSTREAM have no such columns and must not be given. Raises NotEncodable.
    """
    prefix = np.frombuffer(record_prefix(physical_id), np.uint8)
    if encoding.form is KeyForm.COMMON:
        datums = [_datum(encoding, column, one) for column, one in zip(encoding.key, texts, strict=True)]
        shortest = _SHORTEST_HANDLE
    else:
        datums, shortest = [_int_handle(encoding, texts[0])], 0
    data, start, length = _beside(datums, rows)
    offsets = np.empty(rows + 1, np.int64)
    key_ends(length, len(prefix), shortest, offsets)
    out = np.zeros(offsets[-1], np.uint8)
    put_keys(prefix, data, start, length, offsets, out)
    return binary_array(out, offsets, None, text=False)


def record_prefix(physical_id: int) -> bytes:
    """`t{id}_r`, the prefix of all record keys of a physical id."""
    return b"t" + (physical_id + _SIGN).to_bytes(8, "big") + b"_r"


def _beside(cells: Sequence[TextCells], rows: int) -> tuple[U8, I64, I64]:
    """Copy the cells of several columns into one buffer. Returns (data, start[row, column], length[row, column])."""
    start, length = np.empty((2, rows, len(cells)), np.int64)
    base = 0
    for at, one in enumerate(cells):
        start[:, at], length[:, at] = one.start + base, one.length
        base += len(one.data)
    data = np.concatenate([one.data for one in cells]) if cells else np.zeros(0, np.uint8)
    return data, start, length


def _int_handle(encoding: TableEncoding, texts: Any) -> TextCells:
    column = encoding.key[0] if encoding.key else None
    if texts.null_count:
        raise NotEncodable("a handle is NULL")
    kind = pa.uint64() if column is not None and column.unsigned else pa.int64()
    try:
        numbers = texts.cast(pa.large_binary()).cast(pa.large_string()).cast(kind).to_numpy()
    except pa.ArrowInvalid:
        raise NotEncodable("a handle is not an integer") from None
    return _fixed((numbers.view(np.uint64) ^ np.uint64(_SIGN)).astype(">u8").view(np.uint8), 8)


def _datum(encoding: TableEncoding, column: Column, texts: Any) -> TextCells:
    """Encode one column of a clustered key as datums: a flag, and bytes whose order is that of the values."""
    if texts.null_count:
        raise NotEncodable(f"column {column.name} of the primary key is NULL")
    kind, rows = kind_of(column), len(texts)
    flag, cells = handle_flag(kind), encode_cells(column, texts)
    if flag == FLAG_BYTES:
        kept, offsets = np.empty(rows, np.int64), np.empty(rows + 1, np.int64)
        grouped_ends(cells.data, cells.start, cells.length, column.id in encoding.trimmed, kept, offsets)
        out = np.zeros(offsets[-1], np.uint8)
        put_groups(cells.data, cells.start, kept, flag, offsets, out)
        return TextCells(out, offsets[:-1], np.diff(offsets))
    if cells.words is None:
        size = int(cells.length[0]) if rows else 0
        body = cells.data.reshape(rows, size)
    else:
        signed = kind in (Kind.INT, Kind.DURATION)
        words = cells.words.view(np.uint64) ^ np.uint64(_SIGN if signed else 0)
        size, body = 8, words.astype(">u8").view(np.uint8).reshape(rows, 8)
    datums = np.empty((rows, size + 1), np.uint8)
    datums[:, 0], datums[:, 1:] = flag, body
    return _fixed(datums.reshape(-1), size + 1)


def _fixed(data: U8, size: int) -> TextCells:
    rows = len(data) // size if size else 0
    return TextCells(data, np.arange(rows, dtype=np.int64) * size, np.full(rows, size, np.int64))
