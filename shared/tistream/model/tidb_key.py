"""What a raw TiDB key is, for whole columns at once (tablecodec: `t{table_id}_r{handle}`, `t{table_id}_i…`, `m…`)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

META_TABLE_ID = 0  # what rows of the `m` keys bear instead of a table id
PREFIX_BYTES = 11  # 't', 8 bytes of table id, '_', 'r' or 'i'


class KeyKind(IntEnum):
    """The kinds that matter to a change stream."""

    OTHER = 0
    META = 1
    RECORD = 2
    INDEX = 3


def _prefixes(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """The first PREFIX_BYTES of every key, zero-padded: shape (n, 11)."""
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    array = array.cast(pa.large_binary())
    assert array.null_count == 0
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    padded = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(PREFIX_BYTES, np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, PREFIX_BYTES)
    out: npt.NDArray[np.uint8] = windows[offsets[:-1] - offsets[0]].copy()
    lengths = np.diff(offsets)
    short = lengths < PREFIX_BYTES
    if short.any():
        beyond = np.arange(PREFIX_BYTES)[None, :] >= lengths[short][:, None]
        out[short] = np.where(beyond, 0, out[short])
    return out


def classify(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int8]:
    """KeyKind of every key."""
    kinds = np.zeros(len(keys), np.int8)
    if len(keys) == 0:
        return kinds
    prefix = _prefixes(keys)
    kinds[prefix[:, 0] == ord("m")] = KeyKind.META
    table = (prefix[:, 0] == ord("t")) & (prefix[:, 9] == ord("_"))
    kinds[table & (prefix[:, 10] == ord("r"))] = KeyKind.RECORD
    kinds[table & (prefix[:, 10] == ord("i"))] = KeyKind.INDEX
    return kinds


def table_ids(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The physical table id of `t` keys, META_TABLE_ID of any other."""
    if len(keys) == 0:
        return np.zeros(0, np.int64)
    prefix = _prefixes(keys)
    ids = np.ascontiguousarray(prefix[:, 1:9]).view(">u8").reshape(-1).astype(np.uint64)
    signed = (ids ^ np.uint64(1 << 63)).view(np.int64)
    return np.where(prefix[:, 0] == ord("t"), signed, META_TABLE_ID)
