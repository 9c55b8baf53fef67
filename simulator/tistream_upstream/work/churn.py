"""Makes regions split, merge and change leaders, agents restart, and stores crash, at random. Mutable; no I/O."""

from __future__ import annotations

import random
from itertools import pairwise

from tistream.model.span import KeySpan
from tistream_upstream.config import ClusterConfig
from tistream_upstream.schema.catalog import Catalog
from tistream_upstream.schema.codec import table_prefix
from tistream_upstream.tikv.agents import Agents, Store
from tistream_upstream.tikv.kv import Kv
from tistream_upstream.tikv.regions import Region, RegionMap
from tistream_upstream.world import World

_NEW_LOG = 5  # a region's log begins at this index
_TICK_MS = 50
_BATCH_TRIES = 6


class Churn:
    """Causes random events of regions, agents and stores, `config.churn.per_s` times a second."""

    def __init__(
        self, config: ClusterConfig, world: World, regions: RegionMap, kv: Kv, agents: Agents, catalog: Catalog
    ) -> None:
        self._config = config
        self._world = world
        self._regions = regions
        self._kv = kv
        self._agents = agents
        self._catalog = catalog
        self._rng: random.Random = world.rng("churn")
        self.stopped = False
        self.events: dict[str, int] = {"split": 0, "merge": 0, "move": 0, "restart": 0, "crash": 0, "gone": 0}
        self.batch_splits = 0

    def start(self) -> None:
        """Begin to cause events."""
        self._world.after(_TICK_MS, self._tick)

    def _tick(self) -> None:
        if self.stopped:
            return
        if self._rng.random() < self._config.churn.per_s * _TICK_MS / 1000:
            self.something()
        self._world.after(_TICK_MS, self._tick)

    def something(self) -> None:
        """Cause one event, chosen by the weights of the config."""
        churn = self._config.churn
        weights = {name: getattr(churn, name) for name in self.events}
        if not any(weights.values()):
            return
        (name,) = self._rng.choices(list(weights), list(weights.values()))
        done = {
            "split": self.split,
            "merge": self.merge,
            "move": self.move,
            "restart": self.restart,
            "crash": self.crash,
            "gone": self.gone,
        }
        if done[name]():
            self.events[name] += 1

    # -- regions --------------------------------------------------------------------------------------------------

    def split(self) -> bool:
        """Split a region into two, or more at one log entry. All get a higher version. Returns whether a region was
        split."""
        if len(self._regions.all) >= 3 * self._config.regions + 4:
            return False
        at = self._split_key()
        if at is None:
            return False
        region = self._regions.find(at)
        watched = self._agents.watched(region)
        region.append()
        if watched:
            self._agents.close(region)
        cuts = self._more_cuts(region, at)
        self.batch_splits += len(cuts) > 1
        spans = [KeySpan(*edges) for edges in pairwise([region.span.start, *cuts, region.span.end])]
        kept = spans.pop(0 if self._rng.random() < 0.5 else -1)
        region.version += len(spans)
        parent = (region.id, region.index)
        region.span, region.resolver_ts = kept, 0
        region.holders = self._kv.holders_in(kept)
        self._regions.reindex()
        for span in spans:
            self._add_child(region, span, parent, watched=watched)
        if watched:
            self._agents.watch(region, after=(parent,) if self._rng.random() < 0.5 else ())
        return True

    def _add_child(self, region: Region, span: KeySpan, parent: tuple[int, int], *, watched: bool) -> None:
        store_id = region.store_id if self._rng.random() < 0.7 or not watched else self._any_store().id
        child = Region(self._regions.next_id, region.version, span, _NEW_LOG, store_id, told_ts=region.told_ts)
        self._regions.next_id += 1
        self._regions.add(child)
        child.holders = self._kv.holders_in(span)
        self._kv.raise_max_ts(store_id)
        if watched:
            self._agents.watch(child, after=(parent,))

    def merge(self) -> bool:
        """Merge two neighbouring regions, chosen at random. Returns whether they were merged. They are not if an agent
        does not watch both, or if few regions are left."""
        regions = self._regions.all
        if len(regions) < 2 or len(regions) <= self._config.regions // 2:
            return False
        at = self._rng.randrange(len(regions) - 1)
        left, right = regions[at : at + 2]
        if not (self._agents.watched(left) and self._agents.watched(right)):
            return False
        target, source = (left, right) if self._rng.random() < 0.5 else (right, left)
        for region in (source, target):
            region.append()
            self._agents.close(region)
        span = KeySpan(left.span.start, right.span.end)
        self._regions.remove(source)
        target.version = max(target.version, source.version + 1) + 1
        target.span, target.resolver_ts = span, 0
        target.told_ts = min(target.told_ts, source.told_ts)
        self._regions.reindex()
        for holder, locks in source.holders.items():
            target.hold(holder, locks)
        self._kv.raise_max_ts(target.store_id)
        self._agents.watch(target, after=((source.id, source.index),))
        return True

    def move(self) -> bool:
        """Elect a store, chosen at random, as the leader of a region; it may be the present leader. Returns False if no
        agent watches the region that was chosen."""
        region = self._rng.choice(self._regions.all)
        if not self._agents.watched(region):
            return False
        self.elect(region, self._any_store())
        return True

    def elect(self, region: Region, store: Store) -> None:
        """Make a store the leader of a region. The Raft log continues; the resolved_ts is computed anew. If no agent
        watches the region, see `_hand_over`."""
        if not self._agents.watched(region):
            self._hand_over(region, store)
            return
        self._agents.close(region)
        region.store_id, region.resolver_ts = store.id, 0
        self._kv.raise_max_ts(store.id)
        self._agents.watch(region)
        if self._rng.random() < 0.8:
            region.append()  # the empty entry of the new term

    # -- stores ---------------------------------------------------------------------------------------------------

    def restart(self) -> bool:
        """Restart an agent. If it loses data, some of its regions get other leaders, and the lost spans are scanned.
        Returns True."""
        store = self._any_store()
        lost = self._agents.die(store, lose=self._rng.random() < self._config.churn.lost_push)
        if lost:
            for region in self._regions.all:
                if region.store_id == store.id and self._rng.random() < 0.3:
                    self._hand_over(region, self._any_store())
            self._agents.ask_for_lost()
        return True

    def crash(self) -> bool:
        """Take a store down for a while; other stores lead its regions. Returns whether a store was taken down."""
        living = [store for store in self._agents.stores.values() if store.up]
        if len(living) < 2:
            return False
        store = self._rng.choice(living)
        self._fall(store)
        self._world.after(self._rng.randint(*self._config.churn.down_ms), lambda: self._back(store))
        return True

    def gone(self) -> bool:
        """Remove a store for good; other stores lead its regions. The data that it has not pushed are lost, unless it
        pushes them before it leaves. Returns whether a store was removed."""
        stores = self._agents.stores.values()
        living = [store for store in stores if store.up]
        going = [store for store in living if not store.haunted]  # a broken chain could not be repaired
        if not going or len(living) < 2 or 2 * sum(store.gone for store in stores) + 2 > len(stores):
            return False
        store = self._rng.choice(going)
        store.gone = True
        self._fall(store)
        return True

    def _fall(self, store: Store) -> None:
        lost = self._agents.die(store, lose=self._rng.random() < self._config.churn.lost_push)
        store.up = False
        for region in self._regions.all:
            if region.store_id == store.id:
                if lost:
                    self._hand_over(region, self._any_store())
                else:
                    self.elect(region, self._any_store())
        if lost:
            self._agents.ask_for_lost()
        else:
            self._agents.push(store, now=True)

    def _back(self, store: Store) -> None:
        store.up = True

    def _hand_over(self, region: Region, store: Store) -> None:
        """Make `store` the leader of a region whose log no agent collects, because the agent of its leader died. If
        this changes the leader, the new leader's agent collects the log from the next entry on with a probability of
        one half; the entries that the dead agent has not pushed are then missing. In all other cases, no agent collects
        the log until the region is scanned."""
        moved = region.store_id != store.id
        region.store_id, region.resolver_ts, region.open = store.id, 0, None
        self._kv.raise_max_ts(store.id)
        if moved and self._rng.random() < 0.5:
            self._agents.watch(region)

    # -- choices --------------------------------------------------------------------------------------------------

    def _any_store(self) -> Store:
        return self._rng.choice([store for store in self._agents.stores.values() if store.up])

    def _more_cuts(self, region: Region, at: bytes) -> list[bytes]:
        """Choose the keys at which to split a region: `at`, and further ones for a batch split."""
        cuts = {at}
        if self._rng.random() < self._config.churn.batch_split:
            for _ in range(_BATCH_TRIES):
                other = self._split_key()
                if other is not None and other in region.span:
                    cuts.add(other)
        return sorted(cuts)

    def _split_key(self) -> bytes | None:
        """Choose a random row's key or table prefix that is not a bound of a region; None if no such key was found."""
        tables = self._catalog.usable()
        for _ in range(4):
            if not tables:
                return None
            table = self._rng.choice(tables)
            key = table_prefix(table.id)
            if len(table.rows) and self._rng.random() < 0.8:
                key = table.rows.any(self._rng)
            if self._regions.find(key).span.start != key:
                return key
        return None
