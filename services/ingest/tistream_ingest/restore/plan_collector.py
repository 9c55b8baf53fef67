"""Deletes the plans of restores that have ended. All I/O; plan_garbage.py decides."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.errors import UnknownName
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.meta_client import MetaClient
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.restore.plan_garbage import garbage


@dataclass(slots=True)
class PlanCollector:
    """Collects the plans of ended restores. A background loop calls `step` from one thread. The process that ends a
    restore deletes its plan. The collector deletes the plans of restores that were cancelled, or whose process was
    killed. Several processes may collect at the same time."""

    objects: ObjectStore
    meta: MetaClient
    metrics: IngestMetrics

    def step(self) -> None:
        """Make one pass over the plans of all tenants. Raises Unavailable; the next pass retries."""
        # The LIST first: a restore that is queued later has no plan in it.
        keys = [info.key for info in self.objects.list_after(layout.RESTORES)]
        if not keys:
            return
        try:
            unfinished = self.meta.unfinished_restores().restores
        except UnknownName:  # the meta server's version has no list of them
            return
        for key in garbage(keys, unfinished):
            self.objects.delete(key)
            self.metrics.collected.inc()
