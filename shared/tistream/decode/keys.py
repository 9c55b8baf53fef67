"""Parses raw keys: the table id, the kind (record or index) and the integer handle (upstream-formats 3.1).

This module uses plain numpy without compiled kernels, because Spark's Python workers import it without a warm-up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tistream.decode.kernels.arrow_buffers import I64, Bools, FlatBytes, flat_bytes

INT_HANDLE_KEY_BYTES = 19  # t + table id (8) + _r + handle (8); a common-handle key is always longer
HANDLE_AT = 11
NOT_A_TABLE = -1
META = 0

_TABLE_PREFIX_BYTES = 9
_SIGN = np.uint64(1 << 63)
_RECORD = int.from_bytes(b"_r", "little")
_INDEX = int.from_bytes(b"_i", "little")


def table_ids(keys: Any) -> I64:
    """Parse the physical table id of every key: that of a `t` key, 0 for `m` keys, -1 for any other key. int64[n]."""
    flat = flat_bytes(keys)
    lengths = flat.lengths
    first = _first_bytes(flat)
    words = _words_at(flat, 1)
    ids = (words ^ _SIGN).view(np.int64)
    plain = (first == ord("t")) & (lengths >= _TABLE_PREFIX_BYTES) & (ids > 0)
    if bool(plain.all()):
        return ids
    meta = (first == ord("m")) & (lengths > 0)
    return np.where(plain, ids, np.where(meta, META, NOT_A_TABLE))


def is_record_key(keys: Any) -> Bools:
    """Whether each key is `t{id}_r…`. bool[n]."""
    return _has_tag(flat_bytes(keys), _RECORD)


def is_index_key(keys: Any) -> Bools:
    """Whether each key is `t{id}_i…`. bool[n]."""
    return _has_tag(flat_bytes(keys), _INDEX)


def int_handles(keys: Any) -> tuple[I64, Bools]:
    """Parse the integer handles of record keys. Returns the handles, and which keys have one (keys `t{id}_r` of 19
    bytes)."""
    flat = flat_bytes(keys)
    handles = (_words_at(flat, HANDLE_AT) ^ _SIGN).view(np.int64)
    return handles, _has_tag(flat, _RECORD) & (flat.lengths == INT_HANDLE_KEY_BYTES)


def _has_tag(flat: FlatBytes, tag: int) -> Bools:
    long_enough = flat.lengths >= _TABLE_PREFIX_BYTES + 2
    tags = _gather(flat, _TABLE_PREFIX_BYTES, np.dtype("<u2"))
    hit: Bools = long_enough & (_first_bytes(flat) == ord("t")) & (tags == tag)
    return hit


def _first_bytes(flat: FlatBytes) -> npt.NDArray[np.uint8]:
    return _gather(flat, 0, np.dtype(np.uint8))


def _words_at(flat: FlatBytes, at: int) -> npt.NDArray[np.uint64]:
    """The 8 bytes at offset `at` of each key as a big-endian number; an arbitrary number for a key that is too
    short."""
    return _gather(flat, at, np.dtype("<u8")).byteswap()


def _gather(flat: FlatBytes, at: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Read one number of type `dtype` at offset `at` of each key. The numbers need not be aligned. Near the end of the
    buffer the offset is reduced, so that nothing outside of it is read."""
    length = len(flat.data) // max(len(flat), 1)
    if at + dtype.itemsize <= length and (flat.lengths == length).all():  # the keys of most tables have one length
        return np.ndarray((len(flat),), dtype, flat.data, at, (length,)).copy()
    places = len(flat.data) - dtype.itemsize + 1
    if places <= 0:
        padded = np.zeros(dtype.itemsize, np.uint8)
        padded[: len(flat.data)] = flat.data
        return np.repeat(padded.view(dtype), len(flat))
    overlapping = np.ndarray((places,), dtype, flat.data, strides=(1,))
    return overlapping.take(flat.offsets[:-1] + at, mode="clip")
