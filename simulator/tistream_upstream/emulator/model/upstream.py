"""The emulated cluster: its stores, its data, and PD. The caller advances the clock. Pure.

Equal sources, seeds, times and requests give equal messages.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tistream.model.ts import from_physical_ms, physical_ms
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import errorpb_pb2 as errorpb
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream_upstream.emulator.model.counters import Counters
from tistream_upstream.emulator.model.feed import not_found
from tistream_upstream.emulator.model.gc import WORKER, GcState
from tistream_upstream.emulator.model.mvcc import Mvcc
from tistream_upstream.emulator.model.pd import PdRegions
from tistream_upstream.emulator.model.reads import Reads
from tistream_upstream.emulator.model.region import Region, RegionTable
from tistream_upstream.emulator.model.store import (
    Store,
    StoreConfig,
    congested,
    epoch_not_match,
    not_leader,
)
from tistream_upstream.emulator.model.timeline import (
    COMMIT,
    Command,
    Congested,
    Item,
    RegionsChange,
    Row,
    StoreFault,
    TimelineSource,
)


@dataclass(frozen=True, slots=True)
class Options:
    """`seed` is the seed of the stores' random choices. `gc_life_ms`: TiDB's `tidb_gc_life_time`; GC runs at that
    interval."""

    seed: int = 1
    min_ts_interval_us: int = 1_000_000
    gc_life_ms: int = 600_000


class Upstream:
    """An emulated cluster. `stores` maps ids to (version, labels). `preloaded`: rows that exist before the timeline
    begins."""

    def __init__(
        self,
        source: TimelineSource,
        config: StoreConfig,
        regions: Iterable[Region],
        stores: Mapping[int, tuple[str, dict[str, str]]],
        preloaded: Iterable[Row] = (),
        options: Options = Options(),  # frozen
    ) -> None:
        self.config, self.options = config, options
        self.counters = Counters()
        self.mvcc = Mvcc()
        for row in preloaded:
            self.mvcc.apply(row)
        self.regions = RegionTable(regions)
        self.pd_regions = PdRegions(self.regions.by_id.values())
        self.gc = GcState()
        self.now_us = 0
        self._source = source
        self._next_tick_us = options.min_ts_interval_us
        self._next_gc_us = options.gc_life_ms * 1_000
        self.stores = {
            number: Store(
                number,
                version,
                config,
                self.regions,
                self.mvcc,
                random.Random(f"{options.seed}/{number}"),
                self.counters,
                labels,
            )
            for number, (version, labels) in stores.items()
        }
        self.reads = Reads(self.regions, self.mvcc, self.counters)

    # -- time -----------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time of the cluster's clock, in Unix milliseconds."""
        return physical_ms(self._source.base_ts) + self.now_us // 1_000

    def tso(self, count: int = 1) -> int:
        """Take `count` timestamps. Returns the last one."""
        return self._source.tso(self.now_us, count)

    def advance(self, to_us: int) -> None:
        """Advance the clock to `to_us`. Applies the items that are due, and sends their changes to clients."""
        while self.now_us < to_us:
            upto = min(to_us, self._next_tick_us)
            for item in self._source.items(upto):
                self._pass(item.at_us)
                self._happen(item)
            self._pass(upto)
            self._tick()
        self.step()

    def step(self) -> None:
        """Make every store begin the scans that wait, and send the next events of its running scans."""
        for store in self.stores.values():
            store.step()

    def _pass(self, to_us: int) -> None:
        self.now_us = max(self.now_us, to_us)
        self.pd_regions.advance(self.now_us)

    def _tick(self) -> None:
        if self._next_tick_us <= self.now_us:
            self._next_tick_us += self.options.min_ts_interval_us
            self.step()
            for store in self.stores.values():
                store.resolve(self._source.resolved_limit(store.id, self.now_us))
            self._measure_holds()
        if self._next_gc_us <= self.now_us:
            self._next_gc_us += self.options.gc_life_ms * 1_000
            self.collect(from_physical_ms(self.now_ms - self.options.gc_life_ms))

    def scan(self, store_id: int, request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        """Answer KvScan at a store. As in TiKV, later async commits at the store get a commit_ts above the ts that was
        read."""
        self._source.resolved_limit(store_id, self.now_us)
        return self.reads.scan(store_id, request)

    def raw_refusal(self, store_id: int, context: kvrpcpb.Context) -> errorpb.Error | None:
        """The reason why a store does not accept a raw write now, as an error; None if it does. A store is busy for
        writes as often as for registrations."""
        store = self.stores[store_id]
        if store.rng.random() < self.config.busy_rate:
            self.counters.errors["server_is_busy"] += 1
            return errorpb.Error(
                message="server is busy", server_is_busy=errorpb.ServerIsBusy(reason="too many writes", backoff_ms=20)
            )
        error = self.reads.region_error(store_id, context)
        if error is not None:
            self.counters.errors["raw_region_error"] += 1
        return error

    def _measure_holds(self) -> None:
        for name, hold in self.gc.live(self.now_ms).items():
            if name != WORKER:
                lag = self.now_ms - physical_ms(hold.ts)
                self.counters.hold_lag_max_ms = max(self.counters.hold_lag_max_ms, lag)

    def collect(self, target: int) -> int:
        """Run garbage collection up to `target` (TSO), or up to the lowest hold. Returns the new safe point."""
        safe_point = self.gc.run(target, self.now_ms)
        self.counters.collected_versions += self.mvcc.collect(safe_point)
        return safe_point

    # -- what happens ---------------------------------------------------------------------------------------------

    def _happen(self, item: Item) -> None:
        if isinstance(item, Command):
            self.apply(item)
        elif isinstance(item, RegionsChange):
            self._change(item)
        elif isinstance(item, Congested):
            self._fail(item.region_id, congested(item.region_id))
        else:
            self._fault(item)

    def apply(self, command: Command) -> None:
        """Apply a command, and send it to the subscriptions of its region."""
        rows, repeated = [], []
        for row in command.rows:
            lock = self.mvcc.lock(row.key)
            same = lock is not None and lock.start_ts == row.start_ts
            if lock is not None and same and row.type == COMMIT:
                row = row._replace(txn_source=lock.txn_source)  # noqa: PLW2901  # a write record has its lock's source
            rows.append(row)
            repeated.append(lock is not None and same and lock.generation == row.generation)
            self.mvcc.apply(row)
        self.counters.commands += 1
        self.counters.command_rows += len(command.rows)
        region = self.regions.by_id.get(command.region_id)
        if region is not None:
            self.stores[region.store].send_applied(replace(command, rows=rows), repeated)

    def _change(self, change: RegionsChange) -> None:
        before = dict(self.regions.by_id)
        self.counters.region_changes += 1
        self.regions.change(change.regions, change.gone)
        for region_id in change.gone:
            self._fail(region_id, not_found(region_id))
        for region in change.regions:
            old = before.get(region.id)
            if old is None:
                continue
            if old.version != region.version:
                self._fail(region.id, epoch_not_match(list(change.regions)))
            elif old.store != region.store:
                self._fail(region.id, not_leader(region.id, None if change.silent else region.leader))
        self.pd_regions.learn(change)

    def _fail(self, region_id: int, error: cdcpb.Error) -> None:
        for store in self.stores.values():
            store.fail(region_id, error)

    def _fault(self, fault: StoreFault) -> None:
        store = self.stores[fault.store_id]
        store.up = fault.what != "down"
        if fault.what != "up":
            store.end_streams(f"store {store.id} is {fault.what}")
