"""Encodes a change file of the chain from rows and watermarks in memory. Pure.

Rows are collected in the order in which they arrive, and sorted by (log id, log index) when the file is encoded. A log
id stands for one subscription (docs/agent.md, "Logs"). The rows that a watermark covers are in the same file or in
earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
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
    """The watermark row that one file has for a log: for a subscription, or with RANGE_LOGS for a range of them.
    `log_id` is written as region_id and region_version. `span` has keys as the platform knows them, without the prefix
    of a keyspace. `base_ts` is set only in the log's first row: the files of the chain up to this one have all changes
    of `span` above it."""

    log_id: int
    span: KeySpan
    first_index: int
    log_index: int
    base_ts: int | None
    resolved_ts: int
    tikv_region_id: int
    tikv_store_id: int


@dataclass(frozen=True, slots=True)
class WatermarkColumns(Sequence[WatermarkRow]):
    """The watermark rows of one file, stored as columns, because a file may have 100,000 of them."""

    log_id: Int64s
    start: pa.Array
    end: pa.Array
    first_index: Int64s
    log_index: Int64s
    base_ts: pa.Array
    resolved_ts: Int64s
    tikv_region_id: Int64s
    tikv_store_id: Int64s

    def __len__(self) -> int:
        return len(self.log_id)

    @overload
    def __getitem__(self, at: int) -> WatermarkRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[WatermarkRow]: ...
    def __getitem__(self, at: int | slice) -> WatermarkRow | Sequence[WatermarkRow]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        return WatermarkRow(
            log_id=int(self.log_id[at]),
            span=KeySpan(self.start[at].as_py(), self.end[at].as_py()),
            first_index=int(self.first_index[at]),
            log_index=int(self.log_index[at]),
            base_ts=self.base_ts[at].as_py(),
            resolved_ts=int(self.resolved_ts[at]),
            tikv_region_id=int(self.tikv_region_id[at]),
            tikv_store_id=int(self.tikv_store_id[at]),
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that was cut but not yet written.

    Attributes:
        promises: up to which ts the chain is complete once this file is durable; every key of the territory is in one
            of them.
        carried: the promises of keys without a watermark row; they are written to the footer.
        changes: tables with CHANGE_SCHEMA, in the order of arrival.
        size: the memory that `changes` take, in bytes.
        children: the territories among which the keys are divided after this file, the last one of its chain.
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
    watermarks: WatermarkColumns | tuple[()]
    size: int
    children: tuple[chain.Child, ...] = ()

    @property
    def key(self) -> str:
        """The object's key."""
        return layout.change_file(self.tenant, self.store_id, self.ts)

    @property
    def lowest_ts(self) -> int:
        """The lowest ts of the promises."""
        return min(promise.ts for promise in self.promises)

    def data(self) -> bytes:
        """Encode the file. The bytes depend only on this draft and on the version of pyarrow."""
        metadata = {
            chain.NONCE: self.nonce,
            chain.EPOCH: str(self.epoch),
            chain.SPANS: chain.spans_text(self.carried, self.lowest_ts),
            chain.SOURCE: chain.SOURCE_CDC,
        }
        if self.children:
            metadata[chain.CHILDREN] = chain.children_text(self.children)
        return write_change_file(
            FileIdentity(self.tenant, self.store_id, self.prev_ts),
            _groups(self.changes),
            _watermark_table(self.watermarks or None),
            dictionary=_DICTIONARY,
            schema=FILE_SCHEMA,
            metadata=metadata,
        )


def draft_without_rows(
    tenant: TenantKey,
    store_id: int,
    position: chain.Position,
    nonce: str,
    children: tuple[chain.Child, ...] = (),
) -> Draft:
    """The next file of a chain, without rows. It repeats the promises of `position`: up to which ts the changes of each
    key are in files. `children`: if it is the chain's last file, the territories among which the keys are divided."""
    return Draft(
        tenant=tenant,
        store_id=store_id,
        ts=position.next_ts,
        prev_ts=position.prev_ts,
        nonce=nonce,
        epoch=0,
        promises=position.promises,
        carried=position.promises,
        changes=(),
        watermarks=(),
        size=0,
        children=children,
    )


def _groups(changes: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """The tables of the file's row groups: all changes, sorted by (log id, log index). Rows of one index stay in the
    order of arrival."""
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
    """Add the columns of FILE_SCHEMA that a table lacks, filled with nulls."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in FILE_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=FILE_SCHEMA)


def _watermark_table(rows: WatermarkColumns | None) -> pa.Table:
    """Convert the watermark rows to a table with FILE_SCHEMA."""
    if rows is None:
        return FILE_SCHEMA.empty_table()
    count = len(rows)
    log_id = pa.array(rows.log_id)
    columns = {
        "type": pa.array(np.full(count, WATERMARK, np.int32)),
        "op_type": pa.array(np.zeros(count, np.int32)),
        "region_id": log_id,
        "region_version": log_id,
        "log_index": pa.array(rows.log_index),
        "key": rows.start,
        "end_key": rows.end,
        "first_index": pa.array(rows.first_index),
        "base_ts": rows.base_ts,
        "resolved_ts": pa.array(rows.resolved_ts),
        "tikv_region_id": pa.array(rows.tikv_region_id),
        "tikv_store_id": pa.array(rows.tikv_store_id),
    }
    return _widened(pa.table(columns))
