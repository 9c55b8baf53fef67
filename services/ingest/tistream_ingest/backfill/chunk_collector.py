"""Deletes the objects of backfills that have ended. It does the I/O; chunk_garbage.py decides which objects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.deleting import Deleter
from tistream.storage.object_store import ObjectStore
from tistream.wire.bulk.backfills import BackfillRow
from tistream_ingest.backfill.chunk_garbage import collectable, garbage
from tistream_ingest.metrics import IngestMetrics

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ChunkCollector:
    """Deletes the objects of ended backfills. A background loop calls `step` from one thread. ended: lists the ended
    backfills of all tenants. Two processes may delete the objects of the same backfill."""

    objects: ObjectStore
    ended: Callable[[], Sequence[BackfillRow]]
    deleter: Deleter
    clock: Clock
    metrics: IngestMetrics
    _empty: set[tuple[TenantKey, str]] = field(default_factory=set)  # not LISTed again

    def step(self) -> None:
        """Go once through the backfills that ended a day ago or before. One that fails is tried again by the next call.
        Raises Unavailable."""
        now_ms = self.clock.now_ms()
        rows = {(TenantKey(row.cluster_id, row.tenant_id), row.backfill_id): row for row in self.ended()}
        self._empty &= rows.keys()
        for row in collectable(rows.values(), now_ms):
            key = TenantKey(row.cluster_id, row.tenant_id), row.backfill_id
            if key not in self._empty:
                try:
                    self._collect(*key, now_ms)
                except TiStreamError as error:
                    fields = {"tenant": str(key[0]), "backfill": key[1], "error": str(error)}
                    log.warning("cannot collect a backfill", extra=fields)

    def _collect(self, tenant: TenantKey, backfill_id: str, now_ms: int) -> None:
        listed = self.objects.list_after(layout.backfill_prefix(tenant, backfill_id))
        there = {info.key: info.modified_ms for info in listed}
        old, plan = garbage(there, now_ms), layout.backfill_plan(tenant, backfill_id)
        left = len(there)
        # The plan first: without it, no reader of the progress takes the chunks for missing ones.
        for keys in ([key for key in old if key == plan], [key for key in old if key != plan]):
            gone, problem = self.deleter.delete(keys)
            self.metrics.collected.inc(len(gone))
            left -= len(gone)
            if problem is not None:
                raise problem
        if not left:
            self._empty.add((tenant, backfill_id))
