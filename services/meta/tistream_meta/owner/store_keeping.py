"""What dispatchers have told this owner of stores, and what follows from it. Pure.

Each heartbeat names all stores that its dispatcher reads or has found. One that no row names is new, whoever names it:
so what a database that was restored has forgotten comes back with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream.model.ids import TenantKey
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Store
from tistream_meta.decide.store_policy import Given, allot
from tistream_meta.owner.catalog import Book

MOVES_MAX = 8  # stores taken from dispatchers that are there, in MOVES_MS
MOVES_MS = 2_000
LOOK_MS = 1_000


@dataclass(frozen=True, slots=True)
class Told:
    """One store of a heartbeat. `load` as store_policy has it; None: not measured yet."""

    tenant: TenantKey
    store_id: int
    load: float | None


@dataclass(slots=True)
class StoreKeeping:
    """One owner's. Monotonic milliseconds."""

    _loads: dict[tuple[TenantKey, int], float] = field(default_factory=dict)
    _found: dict[tuple[TenantKey, int], Store] = field(default_factory=dict)  # no row names them yet
    _heard: set[str] = field(default_factory=set)  # dispatchers that this owner has heard
    _moved_ms: int | None = None
    _look_ms: int = 0

    def forget(self) -> None:
        """A new owner has heard nobody."""
        self._loads.clear()
        self._found.clear()
        self._heard.clear()
        self._moved_ms = None
        self._look_ms = 0

    def hear(self, book: Book, node_id: str, told: Iterable[Told]) -> bool:
        """What a dispatcher has told; whether there are new stores, which nobody reads."""
        self._heard.add(node_id)
        for one in told:
            key = (one.tenant, one.store_id)
            known = book.stores.get(key)
            tenant = book.tenants.get(one.tenant)
            if known is None and tenant is not None and not tenant.erasing:
                self._found[key] = Store(one.tenant, one.store_id)
            # A store that has just moved weighs what it weighed: its next dispatcher has not measured it yet.
            if one.load is not None and known is not None and known.dispatcher_node == node_id:
                self._loads[key] = one.load
        return bool(self._found)

    def due(self, book: Book, dispatchers: Mapping[str, NodeState], now_ms: int, *, turned: bool) -> list[Given]:
        """Stores that are new, or go to another dispatcher now. All are looked at where a node's state has `turned`,
        else every now and then."""
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
        given = allot([*known, *new], dispatchers, self._loads, self._budget(dispatchers, now_ms))
        if any(one.taken for one in given):
            self._moved_ms = now_ms
        placed = {one.store.key for one in given}
        homeless = [Given(store, "no dispatcher is alive") for store in new if store.key not in placed]
        return given + homeless

    def _budget(self, dispatchers: Mapping[str, NodeState], now_ms: int) -> int:
        """None before every dispatcher was heard: its stores would seem to weigh nothing."""
        unheard = [n for n, state in dispatchers.items() if state is NodeState.ALIVE and n not in self._heard]
        paused = self._moved_ms is not None and now_ms - self._moved_ms < MOVES_MS
        return 0 if unheard or paused else MOVES_MAX
