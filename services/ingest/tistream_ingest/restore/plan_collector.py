"""Deletes the plans of restores that have ended. It does the I/O; plan_garbage.py decides which plans."""

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
    """Deletes the plans of restores that were cancelled, or whose process was killed. A process that ends a restore in
    order deletes its plan itself. A background loop calls `step` from one thread. Several processes may do this at the
    same time."""

    objects: ObjectStore
    meta: MetaClient
    metrics: IngestMetrics

    def step(self) -> None:
        """Delete the plans of restores that have ended, of all tenants. Raises Unavailable; the next call tries
        again."""
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
