"""Deletes the objects of tenants that are being erased, and of retired stores. A process that does not know of the
deletion yet may still write for a moment, and an upstream that was not stopped pushes for ever. So a tenant is gone
once two listings, `quiet_ms` apart, have found no object of it. The progress is only in memory: another owner, or this
one after a restart, begins with what still exists."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tistream.clock import Clock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.deleting import Deleter
from tistream.storage.object_store import ObjectStore
from tistream_meta.database.tenant_ends import TenantEnds
from tistream_meta.decide.model import Change, Store, Tenant
from tistream_meta.metrics import MetaMetrics
from tistream_meta.tenants.store_files import to_delete

log = logging.getLogger(__name__)

AT_ONCE = 1_000  # objects in one lot; before each lot the owner's state is checked again
AHEAD_MS = 60_000  # possible difference between this process's clock and the database's clock, which decides
PAUSE_MS = 1_000


class Owner(Protocol):
    """The methods of the meta server that this module uses."""

    def ending(self) -> list[Tenant]:
        """The tenants that are being erased, or that will be deleted at a set time; empty if another meta server is the
        owner."""

    def retired(self) -> list[Store]:
        """The retired stores whose files must be deleted; empty if another meta server is the owner."""

    def write(self, change: Callable[[], Change | None]) -> None:
        """Execute a write as the owner, and publish the change in the routes. Raises Unavailable."""


@dataclass(slots=True)
class _Sweep:
    """The progress of erasing one tenant or store. Times are monotonic ms."""

    deleted: int = 0
    clean_ms: int | None = None  # when a listing found nothing of it
    warned: bool = False  # a warning about objects that are still being written was logged


class TenantEraser:
    """Erases tenants and retired stores. A background loop calls `step`. It has a loop of its own, because a large
    tenant takes long."""

    def __init__(
        self, objects: ObjectStore, owner: Owner, ends: TenantEnds, clock: Clock, quiet_ms: int, metrics: MetaMetrics
    ) -> None:
        self._objects, self._owner, self._ends = objects, owner, ends
        self._clock, self._quiet_ms, self._metrics = clock, quiet_ms, metrics
        self._deleter = Deleter(objects)
        self._sweeps: dict[TenantKey, _Sweep] = {}
        self._store_sweeps: dict[tuple[TenantKey, int], _Sweep] = {}

    def step(self) -> int:
        """Begin to erase the tenants whose time has come, and delete objects of each tenant and store that is being
        erased. Returns the ms until the next call. Raises Unavailable."""
        ending = self._owner.ending()
        self._sweeps = {one.key: self._sweeps.get(one.key, _Sweep()) for one in ending if one.erasing}
        for tenant in ending:
            if tenant.erasing:
                self._erase(tenant.key, self._sweeps[tenant.key])
            elif tenant.delete_at_ms is not None and self._clock.now_ms() >= tenant.delete_at_ms - AHEAD_MS:
                self._begin(tenant.key)
        retired = self._owner.retired()
        self._store_sweeps = {one.key: self._store_sweeps.get(one.key, _Sweep()) for one in retired}
        for store in retired:
            self._erase_store(store, self._store_sweeps[store.key])
        return PAUSE_MS

    def close(self) -> None:
        """Stop the threads that delete objects."""
        self._deleter.close()

    def _begin(self, key: TenantKey) -> None:
        begun: list[Change] = []

        def body() -> Change | None:
            change = self._ends.begin_erasing(key)
            begun.extend([change] if change is not None else [])
            return change

        self._owner.write(body)
        if begun:
            log.warning("tenant is being deleted", extra={"tenant": str(key)})

    def _erase(self, key: TenantKey, sweep: _Sweep) -> None:
        def going_on() -> bool:
            return any(one.key == key for one in self._owner.ending())

        if self._sweep(sweep, lambda: self._found(key), going_on, {"tenant": str(key)}):
            self._owner.write(lambda: self._ends.forget(key))
            log.warning("tenant is deleted", extra={"tenant": str(key), "objects": sweep.deleted})

    def _erase_store(self, store: Store, sweep: _Sweep) -> None:
        key, store_id, through_ts = store.tenant, store.store_id, store.retired_ts or 0
        fields = {"tenant": str(key), "store": store_id}

        def found() -> Iterator[str]:
            return to_delete(self._objects, key, store_id, through_ts)

        if self._sweep(sweep, found, lambda: store in self._owner.retired(), fields):
            self._owner.write(lambda: self._ends.forget_store(key, store_id))
            log.warning("the files of a retired store were deleted", extra={**fields, "objects": sweep.deleted})

    def _sweep(
        self,
        sweep: _Sweep,
        found: Callable[[], Iterator[str]],
        going_on: Callable[[], bool],
        fields: Mapping[str, object],
    ) -> bool:
        """Delete the objects that `found` lists, as long as `going_on` returns True. Returns whether nothing was found
        for `quiet_ms`: every listing since the last pass that deleted objects was empty, and that pass ended `quiet_ms`
        ago."""
        keys = found()
        for lot in iter(lambda: list(itertools.islice(keys, AT_ONCE)), []):
            if not going_on():
                return False
            if sweep.clean_ms is not None and not sweep.warned:
                log.warning("what is deleted is still written to", extra={**fields, "object": lot[0]})
                sweep.warned = True
            sweep.clean_ms = None
            gone, problem = self._deleter.delete(lot)
            sweep.deleted += len(gone)
            self._metrics.erased.inc(len(gone))
            if problem is not None:
                raise problem
            # Objects that were listed are deleted now. Objects that come later are found by the next pass.
        now_ms = self._clock.monotonic_ms()
        if sweep.clean_ms is None:
            sweep.clean_ms = now_ms
            return False
        return now_ms - sweep.clean_ms >= self._quiet_ms and next(found(), None) is None

    def _found(self, key: TenantKey) -> Iterator[str]:
        for prefix in layout.prefixes_of(key):
            for info in self._objects.list_after(prefix):
                yield info.key
