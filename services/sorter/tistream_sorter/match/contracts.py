"""Arrow schemas of the tables that a tick reads and writes, and codes of the push contract (design.md 2). Pure.

The pending state of a task (docs/formats.md) is in Parquet files, which are called parts. UNMATCHED parts hold entries
whose counterpart has not arrived: a prewrite without its commit, or the reverse. READY parts hold committed rows above
the watermark. SEALED parts hold those of one large transaction, in the form of a segment. POINTED rows are READY rows
whose values stay in a change file. A name that ends in _WIDE is the same schema with 64-bit offsets, for tables in
memory.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from tistream.model import raw_row

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
        pa.field("pointer", pa.int64()),  # place of the values in a change file, or null: jobs/pointers.py
    ]
)


def with_expiry(changes: pa.Table) -> pa.Table:
    """Move the column `expire_ts` of a RawKV tenant's changes into the column raw_row.EXPIRE (txn_source), which stores
    it."""
    return changes.set_column(
        changes.column_names.index(raw_row.EXPIRE), raw_row.EXPIRE, changes.column("expire_ts")
    ).drop_columns(["expire_ts"])


def wide(schema: pa.Schema) -> pa.Schema:
    """The schema with 64-bit offsets in its binary columns, for rows in memory. With 32-bit offsets Arrow fails on a
    column chunk of more than 2 GiB, which a shard with wide rows can reach."""
    return pa.schema([field.with_type(pa.large_binary()) if field.type == pa.binary() else field for field in schema])


def widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to a schema that `wide` returned. Polars converts the binary views, because pyarrow 26 crashes
    when it casts more than 2 GiB of them."""
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
        pa.field("log_index", pa.int64()),  # first_index - 1: the log_index of a scan's PREWRITE rows
    ]
)
