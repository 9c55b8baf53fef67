"""Starts tenants: reads the schema_snap of each tenant that has not started, and passes what it says to the caller.

The schema registry deletes a schema_snap once its content is in the registry's log. So if the log exists, the tenant
started before, and a restored meta database has forgotten it. Then the log says at which ts the tenant began, and the
tasks that have manifests continue (pool_frontier.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.errors import CorruptObject, InvalidRequest, InvariantBroken, NotFoundYet, Unavailable
from tistream.format import floor as floor_format
from tistream.model.ids import TenantKey
from tistream.schema import log_format
from tistream.storage import layout
from tistream.storage.in_pieces import PIECE_BYTES, in_pieces
from tistream.storage.object_store import ObjectStore
from tistream_meta.tenants import snapshot
from tistream_meta.tenants.pool_frontier import NO_TASKS, Frontier, frontier
from tistream_meta.tenants.pool_search import pool_tasks

log = logging.getLogger(__name__)

BYTES_MAX = 2 << 30  # 100,000 tables have some 500 MB. The limit bounds the time to read, not memory.
PROBLEM_MAX = 1_000  # characters of the reason why a tenant waits


@dataclass(slots=True)
class _Retry:
    """When to look for a tenant's schema_snap again (`next_ms`, monotonic), and the pause after that. `refused`: the
    version of a large schema_snap that was found to be invalid, and the reason, so that it is not read again while
    other tenants wait."""

    next_ms: int
    pause_ms: int
    refused: tuple[str, str] | None = None
    begins: bool = False  # the registry has no log of it


class TenantStarts:
    """Looks for the schema_snap of tenants that have not started. Each tenant has its own pause between two attempts,
    which doubles up to `retry_max_ms`."""

    def __init__(self, objects: ObjectStore, clock: Clock, retry_max_ms: int) -> None:
        self._objects, self._clock, self._retry_max_ms = objects, clock, retry_max_ms
        self._retries: dict[TenantKey, _Retry] = {}

    def look(
        self,
        keys: Collection[TenantKey],
        found: Callable[[TenantKey, snapshot.SnapshotFacts, Frontier], None],
        missing: Callable[[TenantKey, str], None],
    ) -> None:
        """Look for the schema_snap of each tenant whose retry is due. `found` is called with the facts of a schema_snap
        and the tasks that continue, `missing` with the reason why a tenant cannot start yet."""
        self._retries = {key: retry for key, retry in self._retries.items() if key in keys}
        for key in keys:
            retry = self._retries.setdefault(key, _Retry(0, 100))
            if self._clock.monotonic_ms() < retry.next_ms:
                continue
            # Set before the attempt: an attempt that fails in an unforeseen way must not delay the other tenants.
            retry.next_ms = self._clock.monotonic_ms() + retry.pause_ms
            retry.pause_ms = min(retry.pause_ms * 2, self._retry_max_ms)
            facts = self._read(key, retry)
            tasks = facts if isinstance(facts, str) else self._continued(key)
            if isinstance(tasks, str):
                # The text may quote what outsiders wrote, in characters that a database column may not accept.
                missing(key, tasks.encode("ascii", "backslashreplace").decode()[:PROBLEM_MAX])
            elif not isinstance(facts, str):
                found(key, facts, tasks)

    def _continued(self, key: TenantKey) -> Frontier | str:
        """The tasks with which a tenant that has started before continues, or a text that says why they cannot. The
        registry's log decides whether the tenant has started before, because a search for tasks costs 256 requests, too
        many for every new tenant."""
        try:
            if self._in_log(key) is None:
                return NO_TASKS
            return frontier(key, pool_tasks(self._objects, key))
        except (CorruptObject, InvariantBroken) as error:
            return f"the tenant has started before, and its tasks cannot continue: {error}"
        except Unavailable as error:
            return f"object storage does not answer: {error}"

    def _read(self, key: TenantKey, retry: _Retry) -> snapshot.SnapshotFacts | str:
        name = layout.schema_snap(key)
        try:
            if retry.refused is None:
                data, size = self._objects.get_tail(name, PIECE_BYTES)
                if size == len(data):
                    return snapshot.parse(name, data)
            return self._read_large(name, retry)
        except NotFoundYet:
            return self._only_in_log(key, retry) or f"schema_snap has not come: {name}"
        except CorruptObject as error:
            return f"schema_snap is damaged: {error}"
        except InvalidRequest as error:  # a link that leads out of the store
            return f"schema_snap cannot be read: {error}"
        except Unavailable as error:
            return f"object storage does not answer: {error}"

    def _only_in_log(self, key: TenantKey, retry: _Retry) -> snapshot.SnapshotFacts | str | None:
        """The facts about a tenant's start from the schema registry's log, or a text with the problem of the log; None
        if there is no log."""
        if retry.begins:
            return None
        try:
            facts = self._in_log(key)
            retry.begins = facts is None
            return facts
        except CorruptObject as error:
            return f"schema_snap has not come, and the schema log is damaged: {error}"
        except Unavailable as error:
            return f"object storage does not answer: {error}"

    def _in_log(self, key: TenantKey) -> snapshot.SnapshotFacts | None:
        """The facts about a tenant's start from the schema registry's log; None if there is no log. Raises
        CorruptObject, Unavailable."""
        try:
            name = layout.schema_log(key, self._floor(key))
            return snapshot.SnapshotFacts(*log_format.beginning(name, self._objects.get(name)))
        except NotFoundYet:
            return None

    def _floor(self, key: TenantKey) -> int:
        name = layout.schema_floor(key)
        try:
            return floor_format.decode(name, self._objects.get(name))
        except NotFoundYet:
            return 1

    def _read_large(self, name: str, retry: _Retry) -> snapshot.SnapshotFacts | str:
        """Read a large schema_snap piece by piece. Returns its facts, or the reason if this version of it was refused
        before. Raises CorruptObject, also if the object changes during the read."""
        info = self._objects.head(name)
        if retry.refused is not None and retry.refused[0] == info.version:
            return retry.refused[1]
        retry.refused = None
        try:
            if info.size > BYTES_MAX:
                raise CorruptObject(name, f"schema_snap has {info.size} bytes; no more than {BYTES_MAX} are read")
            return snapshot.parse(name, in_pieces(self._objects, info))
        except CorruptObject as error:
            if self._objects.head(name).version == info.version:
                retry.refused = info.version, f"schema_snap is damaged: {error}"
            raise
