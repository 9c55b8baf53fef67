"""Records the resolved_ts that readers of a tenant have received, in an object that the next holder of a task reads.

A sorter may report progress that is in no manifest, because files without changes raise it in memory only. If the
upstream then breaks its promise and sends a row below that progress, this sorter notices. But a sorter that starts
later would accept the row, and readers that have read past it would miss it. Therefore a sorter compares new rows with
this object too (docs/adr/0023).
"""

from __future__ import annotations

import logging

from tistream.clock import Clock
from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject, NotFoundYet, TiStreamError
from tistream.format.served import Served, decode, encode
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

EVERY_MS = 60_000


class ServedProgress:
    """Writes the object that records the resolved_ts that readers of one tenant have received. Not thread-safe."""

    def __init__(self, objects: ObjectStore, tenant: TenantKey, clock: Clock) -> None:
        self._objects, self._tenant, self._clock = objects, tenant, clock
        self._tried_ms = -EVERY_MS
        self._known_ts = 0  # lower bound of the ts in the object

    def record(self, snapshot_ts: int, resolved_ts: int, flushed_ts: int) -> None:
        """Write `resolved_ts` to the object. Nothing is written if it is at or below `flushed_ts`, which the manifests
        record already, if any API server has written the object less than EVERY_MS ago, or if this object has tried to
        less than EVERY_MS ago. A failed write is logged; a call after EVERY_MS tries again. `snapshot_ts` identifies
        the tenant, because a later tenant of the same name has another one."""
        now_ms = self._clock.monotonic_ms()
        if resolved_ts <= max(flushed_ts, self._known_ts) or now_ms - self._tried_ms < EVERY_MS:
            return
        self._tried_ms = now_ms
        try:
            self._write(Served(snapshot_ts, resolved_ts, self._clock.now_ms()))
        except (CommitConflict, CommitStateUnknown):
            return  # another API server has written it, or this one has
        except TiStreamError as error:
            extra = {"tenant": str(self._tenant), "error": str(error)}
            log.warning("cannot record the resolved_ts that readers have received", extra=extra)

    def _write(self, new: Served) -> None:
        key = layout.served(self._tenant)
        try:
            version = self._objects.head(key).version  # before the body: a change between shows in put_if
            known = decode(key, self._objects.get(key))
        except NotFoundYet:
            self._objects.put_new(key, encode(new))
        except CorruptObject as error:
            log.warning("replaced", extra={"tenant": str(self._tenant), "error": str(error)})
            self._objects.put_if(key, encode(new), version)
        else:
            if known.snapshot_ts == new.snapshot_ts:
                self._known_ts = known.resolved_ts
                if known.resolved_ts >= new.resolved_ts or 0 <= new.written_ms - known.written_ms < EVERY_MS:
                    return
            self._objects.put_if(key, encode(new), version)
        self._known_ts = new.resolved_ts
