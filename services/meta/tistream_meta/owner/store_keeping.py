"""Keeps the reports of dispatchers about stores, and assigns stores to dispatchers by them. Pure.

Each heartbeat names all stores that its dispatcher reads or has found. A store without a row in the database is a new
store. So stores that a restored database has forgotten are inserted again at the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream.model.ids import TenantKey
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Store
from tistream_meta.decide.store_policy import StoreAssignment, assignments
from tistream_meta.owner.owner_copy import OwnerCopy

MOVES_MAX = 8  # stores moved away from live dispatchers in MOVES_MS
MOVES_MS = 2_000
LOOK_MS = 1_000


@dataclass(frozen=True, slots=True)
class ReportedStore:
    """What a heartbeat says about one store. `load`: bytes of its watermarks and references per second; None if it has
    not been measured yet."""

    tenant: TenantKey
    store_id: int
    load: float | None


@dataclass(slots=True)
class StoreKeeping:
    """The reports of dispatchers about stores, as this owner has received them. Times are monotonic ms. Not
    thread-safe."""

    _loads: dict[tuple[TenantKey, int], float] = field(default_factory=dict)
    _found: dict[tuple[TenantKey, int], Store] = field(default_factory=dict)  # without a row in the database yet
    _heard: set[str] = field(default_factory=set)  # dispatchers that have sent this owner a heartbeat
    _moved_ms: int | None = None
    _look_ms: int = 0

    def forget(self) -> None:
        """Forget all reports, because a new owner starts without any."""
        self._loads.clear()
        self._found.clear()
        self._heard.clear()
        self._moved_ms = None
        self._look_ms = 0

    def record(self, book: OwnerCopy, node_id: str, reported: Iterable[ReportedStore]) -> bool:
        """Store what a dispatcher's heartbeat says about stores. Returns whether any store that a dispatcher has
        reported waits for its row in the database."""
        self._heard.add(node_id)
        for one in reported:
            key = (one.tenant, one.store_id)
            known = book.stores.get(key)
            tenant = book.tenants.get(one.tenant)
            if known is None and tenant is not None and not tenant.erasing:
                self._found[key] = Store(one.tenant, one.store_id)
            # A store that has just moved keeps its load: its next dispatcher has not measured it yet.
            if one.load is not None and known is not None and known.dispatcher_node == node_id:
                self._loads[key] = one.load
        return bool(self._found)

    def due(
        self, book: OwnerCopy, dispatchers: Mapping[str, NodeState], now_ms: int, *, turned: bool
    ) -> list[StoreAssignment]:
        """Compute which stores must be written to the database now: new ones, those of lost dispatchers, and those that
        move to another dispatcher. New stores have no dispatcher if none is alive. If `turned`, the state of a node has
        changed, and all stores are examined; otherwise they are examined if there are new stores, or LOOK_MS after the
        last time."""
        self._found = {
            key: store
            for key, store in self._found.items()
            if key not in book.stores and key[0] in book.tenants and not book.tenants[key[0]].erasing
        }
        if not (self._found or turned or now_ms >= self._look_ms):
            return []
        self._look_ms = now_ms + LOOK_MS
        new = list(self._found.values())
        known = [store for _, store in sorted(book.stores.items()) if store.retired_ts is None]
        given = assignments([*known, *new], dispatchers, self._loads, self._budget(dispatchers, now_ms))
        if any(one.taken for one in given):
            self._moved_ms = now_ms
        placed = {one.store.key for one in given}
        homeless = [StoreAssignment(store, "no dispatcher is alive") for store in new if store.key not in placed]
        return given + homeless

    def _budget(self, dispatchers: Mapping[str, NodeState], now_ms: int) -> int:
        """How many stores may move now: MOVES_MAX, but 0 for MOVES_MS after a move, and until every live dispatcher has
        sent this owner a heartbeat, because the stores of a dispatcher without one would seem to have no load."""
        unheard = [n for n, state in dispatchers.items() if state is NodeState.ALIVE and n not in self._heard]
        paused = self._moved_ms is not None and now_ms - self._moved_ms < MOVES_MS
        return 0 if unheard or paused else MOVES_MAX
