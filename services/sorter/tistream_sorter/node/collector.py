"""Deletes the objects that upkeep/gc_plan.py selects as garbage (docs/adr/0009). This module only does I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.errors import TiStreamError
from tistream.format.manifest import PendingPart
from tistream.format.run import Index
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.pool.lineage import Lineage
from tistream.schema import log_format
from tistream.storage import layout
from tistream.storage.deleting import Deleter
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.manifest_log import ManifestLog
from tistream.storage.object_store import ObjectStore
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.claims import HeldTask
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.mailbox import AncestorErasedNote, SchemaReadNote
from tistream_sorter.task.status import log_fields
from tistream_sorter.upkeep.gc_plan import CollectRules, left_behind, unnamed

log = logging.getLogger(__name__)

DELETES_MAX = 1_000  # deletions for one task in a turn, so that the other tasks get their turns
# How many times the pause between scans of a sealed task doubles while there is nothing to delete.
HERITAGE_DOUBLINGS = 6


class Collector:
    """Deletes the garbage of all tasks. One thread calls `collect` repeatedly."""

    def __init__(self, objects: ObjectStore, rules: CollectRules, clock: Clock, metrics: SorterMetrics) -> None:
        self._objects, self._rules, self._clock, self._metrics = objects, rules, clock, metrics
        self._deleter = Deleter(objects)
        self._schema_logs: dict[TenantKey, SchemaLog] = {}

    def collect(self, held: Sequence[HeldTask]) -> bool:
        """Delete objects of each task in turn. An error of one task does not stop the others; the next call tries that
        task again. Returns whether more objects can be deleted at once."""
        tenants = {one.task.state.identity.tenant for one in held}
        self._schema_logs = {tenant: known for tenant, known in self._schema_logs.items() if tenant in tenants}
        more = False
        for one in held:
            try:
                more |= self._turn(one)
            except TiStreamError as error:
                self._metrics.collect_failures.inc()
                log.warning("cannot collect", extra={**log_fields(one.task.state), "error": str(error)})
        return more

    def close(self) -> None:
        """Stop the threads that delete."""
        self._deleter.close()

    def _turn(self, held: HeldTask) -> bool:
        now_ms = self._clock.monotonic_ms()
        state = held.task.durable
        if held.looked_ms is None:
            self._look(held, state, now_ms)
            held.looked_ms = now_ms
        if held.task.read_by_registry and state.retention.keep_ms is not None and held.read_at != state.number:
            held.task.leave(SchemaReadNote(self._schema_read_ts(state.identity.tenant)))
            held.read_at = state.number  # an idle task has no further rows that expire
        if (ancestors := held.task.ancestors) and now_ms >= held.heritage_ms:
            found = [self._look_at_ancestor(held, state, ancestor, now_ms) for ancestor in ancestors]
            held.heritage_looks = 0 if any(found) else min(held.heritage_looks + 1, HERITAGE_DOUBLINGS)
            held.heritage_ms = now_ms + (self._rules.every_ms << held.heritage_looks)
        keys = held.garbage.due(now_ms, self._rules.grace_ms, DELETES_MAX)
        gone, problem = self._deleter.delete(keys)
        held.garbage.deleted(gone)
        self._metrics.collected.inc(len(gone))
        if problem is not None:
            raise problem
        return len(keys) == DELETES_MAX

    def _look(self, held: HeldTask, state: TaskState, now_ms: int) -> None:
        """Search the object store for objects that earlier epochs have left, and for manifests below the floor, and
        record them as garbage. `state` was read before the search: objects that later manifests no longer name are
        recorded by the tick."""
        identity = state.identity
        found = left_behind(self._keys(identity.tenant, identity.task_id), state)
        held.garbage.note(found, now_ms)
        held.floor = TaskObjects(self._objects, identity.tenant, identity.task_id).floor()
        held.garbage.note(self._manifests_below_floor(identity.tenant, identity.task_id), now_ms)

    def _look_at_ancestor(self, held: HeldTask, state: TaskState, ancestor: int, now_ms: int) -> bool:
        """Search the object store for objects of a sealed task that no child names, and record them as garbage. Returns
        whether any of them is new."""
        tenant = state.identity.tenant
        keys = list(self._keys(tenant, ancestor))
        old = self._manifests_below_floor(tenant, ancestor)
        if not keys and not old:
            held.task.leave(AncestorErasedNote(ancestor))
            return False
        view = TaskObjects(self._objects, tenant, ancestor).follow()
        assert view.last is not None, "an ancestor was sealed, and its seal stays"
        # All descendants are read, not only those that hold the ancestor's keys: after a merge, a child task lists the
        # segments of each parent, also those without a key of its own span.
        covers = Lineage(self._objects, tenant).covers(_Sealed(ancestor, WHOLE), None)
        logs = {cover.log.task_id: cover.log for cover in covers}
        if min(logs) != state.identity.task_id:
            return False
        found: list[tuple[tuple[PendingPart, ...], tuple[SegmentRef, ...], Index]] = [
            (log.view.state.pending, log.segments, log.view.index)
            for log in logs.values()
            if log.view.state is not None
        ]
        left = unnamed(keys, found) if len(found) == len(logs) else []
        if view.sealed and TaskObjects(self._objects, tenant, ancestor).floor() < view.number:
            ManifestLog(self._objects, tenant, ancestor, view.last.span).raise_floor(view.number)
        return held.garbage.note([*left, *old], now_ms)

    def _keys(self, tenant: TenantKey, task_id: int) -> Iterable[str]:
        for prefix in layout.data_prefixes(tenant, task_id):
            for info in self._objects.list_after(prefix):
                yield info.key

    def _manifests_below_floor(self, tenant: TenantKey, task_id: int) -> list[str]:
        floor = TaskObjects(self._objects, tenant, task_id).floor()
        first = layout.manifest(tenant, task_id, floor)
        out = []
        for info in self._objects.list_after(layout.manifests(tenant, task_id)):
            if info.key >= first:
                break
            out.append(info.key)
        return out

    def _schema_read_ts(self, tenant: TenantKey) -> int:
        """The ts up to which the schema registry has read the pool, from the newest object of its log. Rows above it
        must stay in the pool."""
        known = self._schema_logs.get(tenant, SchemaLog())
        last = known.key
        for info in self._objects.list_after(layout.schema_log_prefix(tenant), last):
            last = info.key
        if last != known.key:
            known = SchemaLog(last, log_format.decode(last, self._objects.get(last)).high_ts)
            self._schema_logs[tenant] = known
        return known.high_ts


@dataclass(frozen=True, slots=True)
class SchemaLog:
    """The newest object of a schema registry's log that the collector has read: its key, and the ts up to which the log
    has the history with it."""

    key: str = ""
    high_ts: int = 0


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A sealed task as an ancestor: the form that storage's Lineage takes."""

    task_id: int
    span: KeySpan
    parents: tuple[int, ...] = ()
