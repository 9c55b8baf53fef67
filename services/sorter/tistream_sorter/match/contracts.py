"""Arrow schemas of what a tick reads and writes, and the numbers of the push contract that it needs. Pure.

The pending state of a task (docs/formats.md) is two kinds of Parquet parts: UNMATCHED, the seed's prewrite buffer,
and READY, its sorter buffer.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

PREWRITE, COMMIT, ROLLBACK, COMMITTED = 1, 2, 3, 4

CHANGE_COLUMNS = (
    "type",
    "op_type",
    "region_version",
    "log_index",
    "key",
    "value",
    "old_value",
    "start_ts",
    "commit_ts",
    "txn_source",
    "generation",
)

UNMATCHED_SCHEMA = pa.schema(
    [
        pa.field("type", pa.int32()),
        pa.field("op_type", pa.int32()),
        pa.field("region_version", pa.int64()),
        pa.field("log_index", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("old_value", pa.binary()),
        pa.field("start_ts", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("txn_source", pa.int64()),
        pa.field("generation", pa.int64()),
        pa.field("floor", pa.int64()),  # design.md 3: max(start_ts, the slice's resolved_ts) once covered; else null
        pa.field("pointer", pa.int64()),  # where the values are, if they are not here: jobs/pointers.py
    ]
)


def wide(schema: pa.Schema) -> pa.Schema:
    """The schema with 64-bit offsets in its binary columns: as rows are held until they are written. With 32 bits a
    column of more than 2 GiB in one piece is an error of Arrow's, whatever the bounds on a shard were worth."""
    return pa.schema([field.with_type(pa.large_binary()) if field.type == pa.binary() else field for field in schema])


def widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table's rows in a wide schema. Views go through Polars: Arrow's own cast of more than 2 GiB of them ends the
    process (pyarrow 26)."""
    columns = [
        pl.Series(column).to_arrow() if pa.types.is_binary_view(column.type) else column for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=table.column_names).cast(schema)


UNMATCHED_WIDE = wide(UNMATCHED_SCHEMA)

POINTED_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("start_ts", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("op", pa.int8()),
        pa.field("txn_source", pa.int64()),
        pa.field("pointer", pa.int64()),
    ]
)

READY_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("start_ts", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("op", pa.int8()),
        pa.field("value", pa.binary()),
        pa.field("old_value", pa.binary()),
        pa.field("txn_source", pa.int64()),
    ]
)

READY_WIDE, POINTED_WIDE = wide(READY_SCHEMA), wide(POINTED_SCHEMA)

SCANS_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int32()),
        pa.field("start_key", pa.binary()),
        pa.field("end_key", pa.binary()),
        pa.field("region_version", pa.int64()),
        pa.field("log_index", pa.int64()),  # first_index - 1: the place that a scan's PREWRITE rows bear
    ]
)
