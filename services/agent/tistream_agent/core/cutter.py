"""A file of the chain, from rows and watermarks in memory to the object's bytes. Pure.

Rows are in the order in which they arrived, sorted by (log id, log index) when the file is written. A row and the
watermark that covers it are in the same file, or the row is in an earlier one (A5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tistream.format.change_file import EXPIRE, SCHEMA, WATERMARK
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.push.change_writer import DICTIONARY, GROUP_BYTES, GROUP_ROWS, FileIdentity, write_change_file
from tistream.storage import layout
from tistream_agent.core import chain

# Columns of the agent's own are TiKV's ids.
FILE_SCHEMA = pa.schema(
    [
        *SCHEMA,
        pa.field("tikv_region_id", pa.int64()),
        pa.field("tikv_store_id", pa.int64()),
        EXPIRE,
    ]
)
CHANGE_SCHEMA = pa.schema([FILE_SCHEMA.field(name) for name in (*SCHEMA.names[:12], "tikv_region_id", "expire_ts")])
_DICTIONARY = (*DICTIONARY, "tikv_region_id")


@dataclass(frozen=True, slots=True)
class WatermarkRow:
    """A subscription's watermark row in one file. `span` is the platform's. `base_ts`: only after a scan ended."""

    log_id: int
    span: KeySpan
    first_index: int
    log_index: int
    base_ts: int | None
    resolved_ts: int
    tikv_region_id: int
    tikv_store_id: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that was cut but not yet written.

    Attributes:
        promises: what the chain promises once this file is durable; they tile the territory.
        carried: the promises of keys without a watermark row; they are written to the footer.
        changes: tables with CHANGE_SCHEMA, in the order of arrival.
    """

    tenant: TenantKey
    store_id: int
    ts: int
    prev_ts: int
    nonce: str
    epoch: int
    promises: tuple[chain.Promise, ...]
    carried: tuple[chain.Promise, ...]
    changes: tuple[pa.Table, ...]
    watermarks: tuple[WatermarkRow, ...]
    size: int

    @property
    def key(self) -> str:
        """The object's key."""
        return layout.change_file(self.tenant, self.store_id, self.ts)

    @property
    def lowest_ts(self) -> int:
        """The lowest promise."""
        return min(promise.ts for promise in self.promises)

    def data(self) -> bytes:
        """The object's bytes: a function of this draft and of the version of pyarrow."""
        said = {
            chain.NONCE: self.nonce,
            chain.EPOCH: str(self.epoch),
            chain.SPANS: chain.spans_text(self.carried),
            chain.SOURCE: chain.SOURCE_CDC,
        }
        return write_change_file(
            FileIdentity(self.tenant, self.store_id, self.prev_ts),
            _groups(self.changes),
            _watermark_table(self.watermarks),
            dictionary=_DICTIONARY,
            schema=FILE_SCHEMA,
            said=said,
        )


def _groups(changes: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """The row groups: all changes by (log id, log index), in the order of arrival within one index."""
    if not changes:
        return
    table = pa.concat_tables(changes).combine_chunks()
    log_id, index = (table[name].to_numpy() for name in ("region_id", "log_index"))
    order = np.lexsort((index, log_id))  # stable
    if not bool((order == np.arange(len(order))).all()):
        table = table.take(pa.array(order))
    per_row = max(1, table.nbytes // max(1, table.num_rows))
    rows = max(1, min(GROUP_ROWS, GROUP_BYTES // per_row))
    for at in range(0, table.num_rows, rows):
        yield _widened(table.slice(at, rows))


def _widened(table: pa.Table) -> pa.Table:
    """The table with all columns of FILE_SCHEMA; those that it lacks are null."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in FILE_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=FILE_SCHEMA)


def _watermark_table(rows: Sequence[WatermarkRow]) -> pa.Table:
    """The watermark rows as columns."""
    count = len(rows)
    log_id = pa.array([row.log_id for row in rows], pa.int64())
    columns = {
        "type": pa.array(np.full(count, WATERMARK, np.int32)),
        "op_type": pa.array(np.zeros(count, np.int32)),
        "region_id": log_id,
        "region_version": log_id,
        "log_index": pa.array([row.log_index for row in rows], pa.int64()),
        "key": pa.array([row.span.start for row in rows], pa.binary()),
        "end_key": pa.array([row.span.end for row in rows], pa.binary()),
        "first_index": pa.array([row.first_index for row in rows], pa.int64()),
        "base_ts": pa.array([row.base_ts for row in rows], pa.int64()),
        "resolved_ts": pa.array([row.resolved_ts for row in rows], pa.int64()),
        "tikv_region_id": pa.array([row.tikv_region_id for row in rows], pa.int64()),
        "tikv_store_id": pa.array([row.tikv_store_id for row in rows], pa.int64()),
    }
    table = pa.table(columns)
    return _widened(table)
