"""Columns of what was received. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tistream.arrays import Bytes, Int64s
from tistream_agent.core import kernels as k


def binary(data: Bytes, at: Int64s, size: Int64s, valid: np.ndarray[tuple[int], np.dtype[np.bool_]] | None) -> pa.Array:
    """A binary array of pieces of `data`; null where not `valid`."""
    if valid is not None:
        size = np.where(valid, size, 0)
    total = int(size.sum())
    out, offsets = np.empty(total, np.uint8), np.empty(len(at) + 1, np.int32)
    k.gather(data, np.ascontiguousarray(at), np.ascontiguousarray(size), out, offsets)
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(at), [nulls, pa.py_buffer(offsets), pa.py_buffer(out)])
