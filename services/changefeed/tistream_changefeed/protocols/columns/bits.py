"""Converts values of BIT columns to bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import binary_array, numbers_of, one_array, validity
from tistream.schema.tidb.table import Column

_WORD = 8


def bits_width(column: Column) -> int:
    """The number of bits of a BIT column, 1 to 64."""
    return min(max(column.flen, 1), 64)


def bit_bytes(column: Column, array: Any, *, little_endian: bool) -> Any:
    """The values of a BIT column as a large_binary array. Each value has as many bytes as the column's bits need, big
    endian unless `little_endian`."""
    array = one_array(array)
    size = -(-bits_width(column) // 8)
    words = numbers_of(array).astype("<u8" if little_endian else ">u8").view(np.uint8).reshape(-1, _WORD)
    chosen = words[:, :size] if little_endian else words[:, _WORD - size :]
    valid = validity(array) if array.null_count else None
    offsets = np.arange(len(array) + 1, dtype=np.int64) * size
    return binary_array(np.ascontiguousarray(chosen).reshape(-1), offsets, valid, text=False)
