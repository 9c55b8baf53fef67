"""The kernel that splits slices (metadata.Slice) of a log backup into their entries, which are keys and values. It
returns a status instead of raising: 0, or 1 + the index of the malformed entry."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tistream.decode.kernels.jit import i64, kernel

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]


@kernel
def entry_places(data: U8, ends: I64, rows: I64, key_at: I64, key_length: I64, value_at: I64, value_length: I64) -> int:
    """Find the keys and values of entries, which are stored as `key_len u32 LE, key, value_len u32 LE, value, …`. Slice
    i ends before `data[ends[i]]`, and has the entries with the numbers from `rows[i]` to below `rows[i + 1]`, which
    must fill it exactly. Writes the offsets and lengths to the last four arrays. Returns 0, or the number of the first
    bad entry, counted from 1."""
    at = i64(0)
    for slice_ in range(len(ends)):
        end = ends[slice_]
        for row in range(rows[slice_], rows[slice_ + 1]):
            for part in range(2):
                if at + 4 > end:
                    return row + 1
                length = i64(data[at]) | i64(data[at + 1]) << 8 | i64(data[at + 2]) << 16 | i64(data[at + 3]) << 24
                at += 4
                if length > end - at:
                    return row + 1
                if part == 0:
                    key_at[row], key_length[row] = at, length
                else:
                    value_at[row], value_length[row] = at, length
                at += length
        if at != end:
            return i64(rows[slice_ + 1])
    return 0
