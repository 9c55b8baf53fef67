"""The buffer addresses of Arrow columns, as arrays that kernels can read: one number per column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, flat_bytes, one_array


class ColumnViews:
    """Addresses of some columns, which may differ in length. Holds references to the buffers that they point to.

    The values of column c are at `values[c]`. They are `rows[c]` numbers of `widths[c]` bytes. If the width is 0, they
    are `value_bytes[c]` bytes, with `rows[c] + 1` int64 offsets at `offsets[c]`. `nulls[c]` is the address of the
    validity bitmap (0: no nulls), in which the column begins at bit `null_starts[c]`.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        count = len(arrays)
        self.values: I64
        self.values, self.value_bytes, self.offsets, self.nulls, self.null_starts, self.rows, self.widths = np.zeros(
            (7, count), np.int64
        )
        self._alive: list[Any] = []
        for place, array in enumerate(arrays):
            self._add(place, one_array(array))

    def _add(self, place: int, array: Any) -> None:
        self._alive.append(array)
        self.rows[place] = len(array)
        if len(array) and array.null_count:
            self.nulls[place] = array.buffers()[0].address
            self.null_starts[place] = array.offset
        if _is_number(array.type):
            width = array.type.bit_width // 8
            buffer = array.buffers()[1]
            self.widths[place] = width
            self.values[place] = (buffer.address if buffer is not None else 0) + array.offset * width
            return
        flat = flat_bytes(array)
        self._alive.append(flat)
        self.values[place] = flat.data.ctypes.data
        self.value_bytes[place] = len(flat.data)
        self.offsets[place] = flat.offsets.ctypes.data


def _is_number(kind: Any) -> bool:
    try:
        return int(kind.bit_width) in (32, 64)
    except ValueError:
        return False
