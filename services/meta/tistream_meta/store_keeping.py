"""What dispatchers have told this owner of stores, and what follows from it. Pure.

Each heartbeat names all stores that its dispatcher reads or has found. One that no row names is new, whoever names it:
so what a database that was restored has forgotten comes back with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream.model.ids import TenantKey
from tistream_meta.liveness import NodeState
from tistream_meta.model import Plan, Store
from tistream_meta.store_policy import Given, allot

MOVES_MAX = 8  # stores taken from dispatchers that are there, in MOVES_MS
MOVES_MS = 2_000


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
    _rest: tuple[Plan, Mapping[str, NodeState], int] | None = None  # when nothing was to be done, and with what
    _plan: Plan | None = None  # that `_holders` is made of
    _holders: dict[tuple[TenantKey, int], str | None] = field(default_factory=dict)
    _tenants: set[TenantKey] = field(default_factory=set)

    def forget(self) -> None:
        """A new owner has heard nobody."""
        self._loads.clear()
        self._found.clear()
        self._heard.clear()
        self._moved_ms = self._rest = None

    def hear(self, plan: Plan, node_id: str, told: Iterable[Told]) -> bool:
        """What a dispatcher has told; whether there are new stores, which nobody reads."""
        self._heard.add(node_id)
        self._take(plan)
        for one in told:
            key = (one.tenant, one.store_id)
            if key not in self._holders and one.tenant in self._tenants:
                self._found[key] = Store(one.tenant, one.store_id)
            # A store that has just moved weighs what it weighed: its next dispatcher has not measured it yet.
            if one.load is not None and self._holders.get(key) == node_id:
                self._loads[key] = one.load
        return bool(self._found)

    def _take(self, plan: Plan) -> None:
        if plan is not self._plan:
            self._plan = plan
            self._holders = {store.key: store.dispatcher_node for store in plan.stores}
            self._tenants = {tenant.key for tenant in plan.tenants}
            self._found = {key: store for key, store in self._found.items() if key not in self._holders}

    def due(self, plan: Plan, dispatchers: Mapping[str, NodeState], now_ms: int) -> list[Given]:
        """Stores that are new, or go to another dispatcher now."""
        self._take(plan)
        new = list(self._found.values())
        if not new and self._rests(plan, dispatchers, now_ms):
            return []
        given = allot([*plan.stores, *new], dispatchers, self._loads, self._budget(dispatchers, now_ms))
        if any(one.taken for one in given):
            self._moved_ms = now_ms
        placed = {one.store.key for one in given}
        homeless = [Given(store, "no dispatcher is alive") for store in new if store.key not in placed]
        self._rest = None if given or homeless else (plan, dispatchers, now_ms)
        return given + homeless

    def _rests(self, plan: Plan, dispatchers: Mapping[str, NodeState], now_ms: int) -> bool:
        """Whether only loads may have changed since nothing was to be done, a short while ago."""
        if self._rest is None:
            return False
        known, states, at_ms = self._rest
        return known is plan and states == dispatchers and now_ms - at_ms < MOVES_MS

    def _budget(self, dispatchers: Mapping[str, NodeState], now_ms: int) -> int:
        """None before every dispatcher was heard: its stores would seem to weigh nothing."""
        unheard = [n for n, state in dispatchers.items() if state is NodeState.ALIVE and n not in self._heard]
        paused = self._moved_ms is not None and now_ms - self._moved_ms < MOVES_MS
        return 0 if unheard or paused else MOVES_MAX
