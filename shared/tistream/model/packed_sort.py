"""Computes the stable order of integer columns. The value and the row number are packed into one 64-bit word and sorted
together, which is several times faster than an argsort. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tistream.arrays import Int64s, UInt64s

WORD = 64


def stable_order(values: npt.NDArray[Any], classes: npt.NDArray[np.int8] | None = None, class_bits: int = 0) -> Int64s:
    """The row numbers in ascending order of (value, class, row number). Values are int64 or uint64. Classes are from 0
    to below 2 ** class_bits; None: all rows have the same class."""
    count = len(values)
    if count < 2:
        return np.arange(count)
    if classes is None and bool((values[1:] >= values[:-1]).all()):
        return np.arange(count)
    row_bits = (count - 1).bit_length()
    low, high = int(values.min()), int(values.max())
    if (high - low).bit_length() + class_bits + row_bits > WORD:
        return _unpacked(values, classes)
    packed = values.astype(np.uint64) - np.uint64(low % (1 << WORD))
    if classes is not None:
        packed <<= np.uint64(class_bits)
        packed |= classes.astype(np.uint64)
    packed <<= np.uint64(row_bits)
    packed |= np.arange(count, dtype=np.uint64)
    return (sort_words(packed) & np.uint64((1 << row_bits) - 1)).view(np.int64)


def _unpacked(values: npt.NDArray[Any], classes: npt.NDArray[np.int8] | None) -> Int64s:
    keys = (values,) if classes is None else (classes, values)
    return np.lexsort(keys)


def sort_words(words: UInt64s) -> UInt64s:
    """The words in ascending order. Polars sorts 64-bit numbers three times as fast as numpy."""
    return pl.Series(words).sort().to_numpy()
