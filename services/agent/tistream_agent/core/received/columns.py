"""Copies received rows from the receive buffer to Arrow columns. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tistream.arrays import Bytes, Int64s
from tistream_agent.core import kernels as k
from tistream_agent.core import wire


def change_columns(data: Bytes, rows: Int64s, index: Int64s, of: Int64s, prefix: int) -> list[pa.Array]:
    """Build the columns of `cutter.CHANGE_SCHEMA`, in its order.

    Args:
        data: the received bytes, which have the keys and values.
        rows: columns of the row table (kernels.py).
        index: the log index of each row.
        of: for each row, the column of its subscription in the subscription table.
        prefix: how many bytes a keyspace's prefix has; the platform's keys lack it.
    """
    kind, op = rows[k.TYPE], rows[k.OP]
    values = (kind == wire.PREWRITE) | (kind == wire.COMMITTED)
    has_value = values & (op == wire.OP_PUT)
    has_old = values & (rows[k.OLD_LEN] > 0)
    log_id = pa.array(of[k.LOG_ID])
    return [
        pa.array(kind.astype(np.int32)),
        pa.array(op.astype(np.int32)),
        log_id,
        log_id,
        pa.array(index),
        binary(data, rows[k.KEY_AT] + prefix, rows[k.KEY_LEN] - prefix, None),
        binary(data, rows[k.VALUE_AT], rows[k.VALUE_LEN], has_value),
        binary(data, rows[k.OLD_AT], rows[k.OLD_LEN], has_old),
        pa.array(rows[k.START_TS]),
        pa.array(rows[k.COMMIT_TS], mask=rows[k.COMMIT_TS] == 0),
        pa.array(rows[k.SOURCE], mask=rows[k.SOURCE] == 0),
        pa.array(rows[k.GENERATION], mask=rows[k.GENERATION] == 0),
        pa.array(of[k.REGION_ID]),
        pa.array(rows[k.EXPIRE], mask=rows[k.EXPIRE] == 0),
    ]


def binary(data: Bytes, at: Int64s, size: Int64s, valid: np.ndarray[tuple[int], np.dtype[np.bool_]] | None) -> pa.Array:
    """Build a binary array: element i is the `size[i]` bytes of `data` from `at[i]` on; null where not `valid`."""
    if valid is not None:
        size = np.where(valid, size, 0)
    total = int(size.sum())
    out, offsets = np.empty(total, np.uint8), np.empty(len(at) + 1, np.int32)
    k.gather(data, np.ascontiguousarray(at), np.ascontiguousarray(size), out, offsets)
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(at), [nulls, pa.py_buffer(offsets), pa.py_buffer(out)])
