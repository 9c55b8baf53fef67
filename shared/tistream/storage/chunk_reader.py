"""Reads a backfill's plan and base chunks from the object store."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tistream.errors import CorruptObject
from tistream.format.backfill import base_chunk, chunk_plan
from tistream.format.backfill.base_chunk import BaseChunk, ChunkId
from tistream.format.backfill.chunk_plan import ChunkPlan
from tistream.format.parquet_footer import NeedMore
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

TAIL_BYTES = 64 << 10


def read_plan(objects: ObjectStore, tenant: TenantKey, backfill_id: str) -> ChunkPlan:
    """Read the plan of a backfill. Raises NotFoundYet if it has not been written yet, CorruptObject if it is damaged,
    Unavailable."""
    key = layout.backfill_plan(tenant, backfill_id)
    return chunk_plan.decode_plan(key, objects.get(key))


def open_chunk(objects: ObjectStore, identity: ChunkId) -> BaseChunk:
    """Read and check a chunk's footer: one request, or two if the footer is larger than TAIL_BYTES. Raises NotFoundYet,
    CorruptObject, Unavailable."""
    key = layout.base_chunk(identity.tenant, identity.backfill_id, identity.number)
    length = TAIL_BYTES
    for _ in range(2):
        tail, size = objects.get_tail(key, length)
        found = base_chunk.parse_footer(key, identity, tail, size)
        if not isinstance(found, NeedMore):
            return found
        length = found.length
    raise CorruptObject(key, "changed while its footer was read")


def read_chunk(objects: ObjectStore, chunk: BaseChunk) -> Iterator[pa.Table]:
    """Read a chunk's rows, in key order. Yields one checked table for each row group that has rows. Raises NotFoundYet
    if the chunk is gone, CorruptObject if it is damaged, Unavailable."""
    held = [(chunk.size - len(chunk.tail), chunk.tail)]
    after: bytes | None = None
    for group in chunk.groups:
        source = fetch_ranges(objects, chunk.key, chunk.size, [(group.offset, group.length)], held)
        table = base_chunk.read_group(chunk, source, group.index, after)
        if table.num_rows:
            after = table.column("key")[-1].as_py()
            yield table
