"""Converts committed rows of RawKV to the events of a pull, whole columns at a time. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.format.segment import OP_PUT as STORED_PUT
from tistream.model import raw_row
from tistream.read.events import RawRows
from tistream.read.plan import OP_DELETE, OP_PUT
from tistream.read.raw_scope import RawScope
from tistream.read.row_events import Rendered


def render_raw(rows: pa.Table, scope: RawScope, op: int | None = None) -> Rendered:
    """Convert committed rows (tistream.format.segment.SCHEMA, in any order) with keys in the scope to events. `op`:
    convert deletes only (OP_DELETE) or puts only (OP_PUT); None: both."""
    puts = rows.column("op").to_numpy() == STORED_PUT
    keep = np.ones(len(rows), np.bool_) if op is None else puts == (op == OP_PUT)
    span = scope.span
    if span is not None:
        keys = rows.column("key")
        inside = pc.and_(
            pc.greater_equal(keys, pa.scalar(span.start, keys.type)), pc.less(keys, pa.scalar(span.end, keys.type))
        )
        keep &= inside.to_numpy()
    if not keep.all():
        rows, puts = rows.filter(pa.array(keep)), puts[keep]
    keyspace: Int64s = -1 - rows.column("table_id").to_numpy()  # raw_row.keyspace_of
    expire_ts = pc.fill_null(rows.column(raw_row.EXPIRE), 0).to_numpy()
    return Rendered(
        [
            RawRows(
                rows.column("commit_ts").to_numpy(),
                rows.column("start_ts").to_numpy(),
                keyspace,
                np.where(puts, OP_PUT, OP_DELETE),
                _whole(rows.column("key")),
                _whole(rows.column("value")),
                np.where(puts, expire_ts, 0),
            )
        ],
        None,
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
