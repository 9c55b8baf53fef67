"""The 64-bit hash of an event: of its commit_ts and of what the sink gets for it, which states key, operation and row.
Pure. Hashes are stored with the progress of feeds, so the function must not change. Compiled with numba."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s, UInt64s
from tistream.decode.kernels.arrow_buffers import I64, U8, flat_bytes, numbers_of, one_array, validity
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import peek64

_ODD, _START, _NULL = 0x9E3779B97F4A7C15, 0x27D4EB2F165667C5, 0x165667B19E3779F9
_FACTOR, _SHIFT, _BYTE, _WORD = u64(_ODD), u64(29), u64(8), 8
_WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def event_hashes(commit_ts: Int64s, columns: Sequence[Any], names: Sequence[str] = ()) -> UInt64s:
    """The hash of each event. `columns`: what the sink gets for the events, as arrays of bytes, texts or numbers with
    one element for each event. A null is not the same as an empty value; a column that is None has nulls only. `names`:
    those of the columns, if the sink gets them."""
    hashes = np.full(len(commit_ts), _START ^ zlib.crc32("\0".join(names).encode()), np.uint64)
    for column in columns:
        _add(hashes, column)
    _add_numbers(hashes, commit_ts.astype(np.uint64))
    return hashes


def _add(hashes: UInt64s, column: Any) -> None:
    """Mix the values of a column into the hashes of its rows, in place. None: a column of nulls."""
    if column is None:
        _add_numbers(hashes, np.full(len(hashes), _NULL, np.uint64))
        return
    array = one_array(column)
    absent = ~validity(array) if array.null_count else None
    before = None if absent is None else hashes[absent]
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        values = numbers_of(array)
        _add_numbers(hashes, values.view(_WIDTHS[values.itemsize]).astype(np.uint64))
    else:
        flat = flat_bytes(array)
        _add_bytes(hashes, flat.data, flat.offsets)
    if absent is not None and before is not None:
        _add_numbers(before, np.full(len(before), _NULL, np.uint64))
        hashes[absent] = before


def _add_numbers(hashes: UInt64s, values: UInt64s) -> None:
    hashes ^= values
    hashes *= np.uint64(_ODD)
    hashes ^= hashes >> np.uint64(29)


@kernel
def _add_bytes(hashes: UInt64s, data: U8, offsets: I64) -> None:
    """Mix byte string i, `data[offsets[i]:offsets[i + 1]]`, and its length into hash i. Four words at a time are mixed
    into four hashes, because a processor computes these side by side."""
    for row in range(len(hashes)):
        at, end = offsets[row], offsets[row + 1]
        value = _mixed(hashes[row], u64(end - at))
        if at + 4 * _WORD <= end:
            second, third, fourth = value ^ u64(1), value ^ u64(2), value ^ u64(3)
            while at + 4 * _WORD <= end:
                value = _mixed(value, u64(peek64(data, at)))
                second = _mixed(second, u64(peek64(data, at + _WORD)))
                third = _mixed(third, u64(peek64(data, at + 2 * _WORD)))
                fourth = _mixed(fourth, u64(peek64(data, at + 3 * _WORD)))
                at += i64(4 * _WORD)
            value = _mixed(_mixed(_mixed(value, second), third), fourth)
        while at + _WORD <= end:
            value = _mixed(value, u64(peek64(data, at)))
            at += i64(_WORD)
        rest = u64(0)
        while at < end:
            rest = (rest << _BYTE) | u64(data[at])
            at += i64(1)
        hashes[row] = _mixed(value, rest)


@inline
def _mixed(value: Any, word: Any) -> Any:
    """The hash `value` with a 64-bit word mixed in."""
    value = (value ^ word) * _FACTOR
    return value ^ (value >> _SHIFT)
