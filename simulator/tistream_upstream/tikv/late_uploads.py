"""Uploads of dead agents that arrive late, and the new chain that their store then needs. Mutable; no I/O.

The next agent of the store continues the chain after the last file that it finds. If the upload arrives after that, two
files name the same prev_ts, and the store is quarantined (design.md 2). Its later files may be ignored, so it begins a
new chain, and the present leaders scan every span that the store led since the last file before these two.
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
    """Makes some uploads of dead agents arrive after a file of the store's next agent. If such an upload has broken the
    store's chain, makes the store begin a new one. `elect` makes a store the leader of a region. `landed` and `broken`
    count the late uploads that arrived, and the chains that they broke."""

    def __init__(self, world: World, regions: RegionMap, agents: Agents, elect: Elect) -> None:
        self._world = world
        self._regions = regions
        self._agents = agents
        self._elect = elect
        self._rng: random.Random = world.rng("late uploads")
        self.landed = self.broken = 0
        agents.on_late, agents.on_successor = self._left, self._succeeded

    def _left(self, store: Store, upload: Upload) -> None:
        """Handle the death of an agent during an upload: the upload is dropped after _FORGOTTEN_MS, unless it has
        arrived before."""
        self._world.after(_FORGOTTEN_MS, lambda: self._forget(store, upload))

    def _forget(self, store: Store, upload: Upload) -> None:
        if store.late is upload:
            store.late = None

    def _succeeded(self, store: Store, upload: Upload, *, anew: bool) -> None:
        """Handle the arrival of the file of the store's next agent that takes the place of `upload` in the chain, or
        that begins a new chain (`anew`): schedule the late arrival of `upload`."""
        self._world.after(self._rng.randint(*_LANDS_MS), lambda: self._land(store, upload, anew=anew))

    def _land(self, store: Store, upload: Upload, *, anew: bool) -> None:
        if store.late is not upload:
            return
        store.late = None
        self.landed += 1
        self._agents.tell(store, upload)
        if not anew:  # otherwise it belongs to the previous chain
            self.broken += 1
            store.broken = True
            self._world.after(self._rng.randint(*_MENDED_MS), partial(self._mend, store))

    def _mend(self, store: Store) -> None:
        """Make the store begin a new chain. Repeats that until the chain is not broken any more."""
        if not store.broken:
            return
        self._world.after(self._rng.randint(*_MENDED_MS), partial(self._mend, store))
        if not store.up or self._agents.renewing(store):
            return
        if not any(region.store_id == store.id for region in self._regions.all):
            self._elect(self._rng.choice(self._regions.all), store)  # a chain begins with what the store leads
        self._agents.die(store, lose=True)
        self._agents.ask_for_lost()
