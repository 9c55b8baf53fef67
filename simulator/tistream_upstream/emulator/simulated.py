"""Drives an emulated cluster by the simulated cluster of this package (tistream_upstream.cluster), whose truth is
known. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import orjson

from tistream.model.ts import physical_ms
from tistream_upstream.cluster import Cluster
from tistream_upstream.config import ClusterConfig
from tistream_upstream.emulator.model.meta_rows import meta_rows
from tistream_upstream.emulator.model.region import Region, encoded_bound
from tistream_upstream.emulator.model.store import StoreConfig
from tistream_upstream.emulator.model.timeline import (
    PREWRITE,
    Command,
    Congested,
    Item,
    RegionsChange,
    Row,
    StoreFault,
)
from tistream_upstream.emulator.model.upstream import Options, Upstream
from tistream_upstream.tikv.regions import Entry
from tistream_upstream.tikv.regions import Region as SimulatedRegion

_PD_DELAYS_US = (0, 2_000, 30_000, 150_000)
_PEERS = 1_000  # peer id = region id * _PEERS + store id
_CLUSTER_ID = 7_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Faults:
    """The rate of random faults of stores: `per_s` faults a second in all, each of which lasts `down_us`; `busy_rate`:
    the share of registrations that are refused as busy."""

    per_s: float = 0.5
    down_us: tuple[int, int] = (200_000, 2_000_000)
    busy_rate: float = 0.05


class SimulatedSource:
    """A timeline that the simulated `cluster` makes. The cluster's change files are not used."""

    def __init__(self, cluster: Cluster, seed: int, faults: Faults) -> None:
        self._cluster, self._faults = cluster, faults
        self._rng = random.Random(f"{seed}/faults")
        self.base_ts = cluster.snapshot_ts
        self._begin_ms = physical_ms(self.base_ts)
        self._found: list[Item] = []
        self._index = 0
        self._ups: list[StoreFault] = []
        self._next_fault_us = self._pause_us()
        self._known = {region.id: self._region(region) for region in cluster.regions.all}
        cluster.kv.observe = self._observed

    @property
    def regions(self) -> list[Region]:
        """The present regions."""
        return list(self._known.values())

    def items(self, to_us: int) -> Iterator[Item]:
        """Return the items that happen up to `to_us`, in order; each item is returned once."""
        self._cluster.advance(self._begin_ms + to_us // 1_000)
        self._compare()
        self._break(to_us)
        found, self._found = self._found, []
        yield from found

    def tso(self, now_us: int, count: int) -> int:  # noqa: ARG002  # the cluster has a clock of its own
        """Take `count` timestamps. Returns the last one."""
        return max(self._cluster.ts() for _ in range(count))

    def resolved_limit(self, store_id: int, now_us: int) -> int:  # noqa: ARG002
        """Implement TimelineSource.resolved_limit: a timestamp above which the store's async commits and 1PC commit
        from now on."""
        self._cluster.kv.raise_max_ts(store_id)
        return self._cluster.kv.max_ts[store_id]

    def rows(self) -> Iterator[Row]:
        """The rows that exist at the beginning: those of the schema, and the locks of open transactions."""
        yield from meta_rows(orjson.loads(self._cluster.schema_snap))
        for key, (txn, one) in self._cluster.kv.locks.items():
            if one.op:
                value, old = one.value or b"", one.old_value or b""
                yield Row(PREWRITE, one.op, key, value, old, txn.start_ts, 0, txn.source or 0, one.generation or 0)

    @property
    def _now_us(self) -> int:
        return (self._cluster.now_ms - self._begin_ms) * 1_000

    def _observed(self, region: SimulatedRegion, entries: Sequence[Entry]) -> None:
        if self._known.get(region.id) != self._region(region):
            self._compare()
        rows = [_row(entry) for entry in entries]
        self._found.append(Command(self._now_us, region.id, entries[0].log_index, rows))

    def _compare(self) -> None:
        """Add to the timeline how regions have changed since the last call."""
        now = {region.id: self._region(region) for region in self._cluster.regions.all}
        changed = [region for region in now.values() if self._known.get(region.id) != region]
        gone = [number for number in self._known if number not in now]
        if changed or gone:
            delay, silent = self._rng.choice(_PD_DELAYS_US), self._rng.random() < 0.3
            self._found.append(RegionsChange(self._now_us, changed, gone, delay, silent))
            self._known = now

    def _break(self, to_us: int) -> None:
        for up in [one for one in self._ups if one.at_us <= to_us]:
            self._ups.remove(up)
            self._found.append(replace(up, at_us=to_us))
        while self._next_fault_us <= to_us:
            self._next_fault_us += self._pause_us()
            store = self._rng.randint(1, self._cluster.config.stores)
            what = self._rng.choice(("congested", "reset", "down"))
            if what == "congested":
                self._found.append(Congested(to_us, self._rng.choice(list(self._known))))
                continue
            if any(one.store_id == store for one in self._ups):
                continue
            self._found.append(StoreFault(to_us, store, what))
            if what == "down":
                self._ups.append(StoreFault(to_us + self._rng.randint(*self._faults.down_us), store, "up"))

    def _pause_us(self) -> int:
        return int(self._rng.expovariate(self._faults.per_s) * 1e6) if self._faults.per_s else 1 << 62

    def _region(self, found: SimulatedRegion) -> Region:
        peers = {store: found.id * _PEERS + store for store in range(1, self._cluster.config.stores + 1)}
        span = found.span
        start, end = encoded_bound(span.start), encoded_bound(span.end)
        return Region(found.id, start, end, found.version, 1, found.store_id, peers)


def simulated_upstream(
    config: ClusterConfig,
    seed: int,
    faults: Faults = Faults(),  # frozen
    version: str = "8.5.4",
    options: Options | None = None,
) -> tuple[Upstream, Cluster]:
    """Make an emulated cluster and the simulated one that drives it. The simulated one has the truth. It loses no
    pushes and no stores, whatever `config` says."""
    config = replace(config, churn=replace(config.churn, lost_push=0.0, gone=0.0))
    cluster = Cluster(config, seed)
    source = SimulatedSource(cluster, seed, faults)
    stores = {number: (version, {"zone": f"z{number}"}) for number in range(1, config.stores + 1)}
    store_config = StoreConfig(_CLUSTER_ID + seed, busy_rate=faults.busy_rate)
    found = options if options is not None else Options(seed)
    return Upstream(source, store_config, source.regions, stores, source.rows(), found), cluster


def _row(entry: Entry) -> Row:
    return Row(
        entry.type,
        entry.op_type,
        entry.key,
        entry.value or b"",
        entry.old_value or b"",
        entry.start_ts,
        entry.commit_ts or 0,
        entry.txn_source or 0,
        entry.generation or 0,
    )
