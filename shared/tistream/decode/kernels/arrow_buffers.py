"""Converts Arrow arrays to flat numpy arrays and back, without copying where possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WIDE = frozenset({pa.large_binary(), pa.large_string()})
_NARROW = frozenset({pa.binary(), pa.string()})


@dataclass(frozen=True, slots=True)
class FlatBytes:
    """Byte strings, stored end to end: string i is `data[offsets[i]:offsets[i + 1]]`. offsets[0] is 0. Nulls are empty
    strings."""

    data: U8
    offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> I64:
        return np.diff(self.offsets)


def one_array(values: Any) -> Any:
    """Convert an Array or ChunkedArray to one pa.Array with the same values."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return values


def flat_bytes(values: Any) -> FlatBytes:
    """Convert a binary or string array, large or not, to FlatBytes. Arrays of view and dictionary types are converted
    first."""
    array = one_array(values)
    if array.type not in _WIDE and array.type not in _NARROW:
        array = array.cast(pa.large_binary())
    width = np.dtype(np.int64 if array.type in _WIDE else np.int32)
    _, offsets_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offsets_buffer is None:
        return FlatBytes(_read_only(np.zeros(0, np.uint8)), np.zeros(1, np.int64))
    raw = np.frombuffer(offsets_buffer, width, len(array) + 1, array.offset * width.itemsize)
    offsets = raw.astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    if first:
        offsets -= first
    if data_buffer is None or first == last:
        return FlatBytes(_read_only(np.zeros(0, np.uint8)), offsets)
    return FlatBytes(_read_only(np.frombuffer(data_buffer, np.uint8, last - first, first)), offsets)


def binary_array(data: U8, offsets: I64, valid: Bools | None, *, text: bool) -> Any:
    """Build a large_string array (`text`) or a large_binary array that shares these buffers. Text must be valid UTF-8;
    this is not checked."""
    kind = pa.large_string() if text else pa.large_binary()
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [nulls, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def number_array(values: npt.NDArray[Any], valid: Bools | None) -> Any:
    """Build an int64, uint64, float32 or float64 array that shares this buffer."""
    kind = pa.from_numpy_dtype(values.dtype)
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [nulls, pa.py_buffer(np.ascontiguousarray(values))])


def validity(array: Any) -> Bools:
    """For each element, whether it is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


def numbers_of(array: Any) -> npt.NDArray[Any]:
    """The raw values of a fixed-width number array. The values of nulls are arbitrary."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    if len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _read_only(array: U8) -> U8:
    """A read-only view of an array. Kernels get only such arrays as input, so they are compiled for one type of input
    only."""
    array.flags.writeable = False
    return array
