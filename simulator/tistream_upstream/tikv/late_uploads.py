"""Uploads of dead agents that land after all, and the new chain that their store needs then. Mutable; no I/O.

The next agent of the store has looked where its chain ends, and goes on there; then the upload lands: two files name
one prev_ts, and the store is quarantined (design.md 2). What it pushed since may count for nothing, so it begins a new
chain, and every span that it led since the last file before the two is scanned, by whoever leads it now.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tistream_upstream.tikv.agents import Agents, Store, Upload
from tistream_upstream.tikv.regions import Region, RegionMap
from tistream_upstream.world import World

_LANDS_MS = (1, 1_500)
_FORGOTTEN_MS = 5_000
_MENDED_MS = (500, 2_000)
Elect = Callable[[Region, Store], None]


class LateUploads:
    """Lets uploads land late, and has their stores mended."""

    def __init__(self, world: World, regions: RegionMap, agents: Agents, elect: Elect) -> None:
        self._world = world
        self._regions = regions
        self._agents = agents
        self._elect = elect
        self._rng: random.Random = world.rng("late uploads")
        self.landed = self.broken = 0
        agents.on_late, agents.on_successor = self._left, self._succeeded

    def _left(self, store: Store, upload: Upload) -> None:
        """An agent died with an upload under way. If no other file takes its place, it is never heard of again."""
        self._world.after(_FORGOTTEN_MS, lambda: self._forget(store, upload))

    def _forget(self, store: Store, upload: Upload) -> None:
        if store.late is upload:
            store.late = None

    def _succeeded(self, store: Store, upload: Upload, *, anew: bool) -> None:
        """The next agent's first file has arrived."""
        self._world.after(self._rng.randint(*_LANDS_MS), lambda: self._land(store, upload, anew=anew))

    def _land(self, store: Store, upload: Upload, *, anew: bool) -> None:
        if store.late is not upload:
            return
        store.late = None
        self.landed += 1
        self._agents.tell(store, upload)
        if not anew:  # else it is of the chain before
            self.broken += 1
            store.broken = True
            self._world.after(self._rng.randint(*_MENDED_MS), partial(self._mend, store))

    def _mend(self, store: Store) -> None:
        """Have the store begin a new chain, until it has."""
        if not store.broken:
            return
        self._world.after(self._rng.randint(*_MENDED_MS), partial(self._mend, store))
        if not store.up or self._agents.renewing(store):
            return
        if not any(region.store_id == store.id for region in self._regions.all):
            self._elect(self._rng.choice(self._regions.all), store)  # a chain begins with what the store leads
        self._agents.die(store, lose=True)
        self._agents.ask_for_lost()
