"""Reads the progress of a backfill. Its plan, its chunks and the refusals of chunks are in the object store. The base
runs that tasks have made of the chunks are in the tenant's manifests."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from tistream.concurrency import Lock, new_lock
from tistream.errors import CorruptObject, NotFoundYet, TiStreamError
from tistream.follow.tenant_view import TenantView
from tistream.format.backfill import refused_chunk
from tistream.format.backfill.base_chunk import ChunkId
from tistream.format.backfill.chunk_plan import ChunkPlan
from tistream.model.ids import TenantKey
from tistream.read.completeness import complete_from
from tistream.read.cursor import Scope
from tistream.schema.visible import TableVersion
from tistream.storage import layout
from tistream.storage.chunk_reader import open_chunk, read_plan
from tistream.storage.object_store import ObjectStore
from tistream.wire.bulk.backfills import BackfillInfo, BackfillRow, BackfillSummary
from tistream_api.status.backfilled_tables import Chunks, backfilled_tables

FOOTERS_MAX = 256  # of one request: the rows of more chunks are counted by later requests
BACKFILLS_MAX = 64  # whose counts are kept


def summary(row: BackfillRow) -> BackfillSummary:
    """Convert a backfill to the form of an HTTP answer, without the list of tables."""
    return BackfillSummary(**_members(row))


@dataclass(slots=True)
class BackfillProgress:
    """Reads the progress of backfills. Thread-safe. `executor` runs the reads of the chunks' footers. The number of
    rows that a footer states is kept, so that each is read once."""

    objects: ObjectStore
    executor: Executor
    _lock: Lock = field(default_factory=new_lock)
    _rows: OrderedDict[tuple[TenantKey, str], dict[int, int]] = field(default_factory=OrderedDict)

    def of(self, view: TenantView, row: BackfillRow) -> BackfillInfo:
        """The answer of GetBackfill: the backfill, and the progress of each of its tables. Before its plan exists, it
        has no tables. Raises Unavailable, CorruptObject."""
        view.wait_fresh()
        try:
            plan = read_plan(self.objects, view.tenant, row.backfill_id)
        except NotFoundYet:
            waits = _without_plan(row) if row.state == "running" else None
            return BackfillInfo(**(_members(row) | {"reason": row.reason or waits}), tables=[])
        view.check_known()
        chunks = self._chunks(view.tenant, row.backfill_id)
        source, shards = view.source, view.shards()
        tables = backfilled_tables(
            plan,
            chunks,
            source.tables_at(view.resolved_ts(), Scope(view.tenant)),
            _tables_then(view, plan),
            lambda ids: complete_from(source, shards, ids),
        )
        return BackfillInfo(**_members(row), tables=tables)

    def _chunks(self, tenant: TenantKey, backfill_id: str) -> Chunks:
        sizes = {}
        for info in self.objects.list_after(layout.chunk_prefix(tenant, backfill_id)):
            number = layout.parse_base_chunk(tenant, backfill_id, info.key)
            if number is not None:
                sizes[number] = info.size
        refused = {}
        for info in self.objects.list_after(layout.refused_prefix(tenant, backfill_id)):
            number = layout.parse_refused_chunk(tenant, backfill_id, info.key)
            if number is not None:
                refused[number] = refused_chunk.decode(info.key, self.objects.get(info.key))
        return Chunks(sizes, self._counted(tenant, backfill_id, [one for one in sizes if one not in refused]), refused)

    def _counted(self, tenant: TenantKey, backfill_id: str, numbers: list[int]) -> dict[int, int]:
        """Count the rows of chunks, of at most FOOTERS_MAX that were not counted before. Returns all known counts by
        chunk number."""
        with self._lock:
            known = dict(self._rows.get((tenant, backfill_id), {}))
        missing = [number for number in numbers if number not in known][:FOOTERS_MAX]

        def rows(number: int) -> int | None:
            try:
                return open_chunk(self.objects, ChunkId(tenant, backfill_id, number)).rows
            except (CorruptObject, NotFoundYet):  # the sorters refuse it, with the reason
                return None

        for number, count in zip(missing, self.executor.map(rows, missing), strict=True):
            if count is not None:
                known[number] = count
        with self._lock:
            self._rows.setdefault((tenant, backfill_id), {}).update(known)
            self._rows.move_to_end((tenant, backfill_id))
            while len(self._rows) > BACKFILLS_MAX:
                self._rows.popitem(last=False)
        return known


def _members(row: BackfillRow) -> dict[str, Any]:
    return {
        "backfill_id": row.backfill_id,
        "source": row.source,
        "asked": row.tables,
        "state": row.state,
        "reason": row.reason,
        "created_ms": str(row.created_ms),
        "ended_ms": None if row.ended_ms is None else str(row.ended_ms),
    }


def _without_plan(row: BackfillRow) -> str:
    if row.snapshot_ts is None:
        return "the tenant has no schema yet"
    if row.source.kind == "push":
        return "no plan was pushed yet"
    return "the ingest service has not planned it yet"


def _tables_then(view: TenantView, plan: ChunkPlan) -> list[TableVersion]:
    """The tenant's tables at the plan's min_ts; empty if they cannot be read, for example because that ts lies below
    retention."""
    try:
        view.check_served(plan.min_ts)
        return view.source.tables_at(min(plan.min_ts, view.resolved_ts()), Scope(view.tenant))
    except TiStreamError:
        return []
