"""Random histories of split and merged tasks with a version index: retention lets go of segments, merges of runs die,
and a reader of the index reads at any ts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from support.index_reader import state_at
from support.simulated import arrival
from support.sorter_world import InlineRunner
from support.split_histories import History
from support.split_world import PoolReader
from tistream.model.ts import physical_ms
from tistream.pool.lineage import Lineage, LogSpan
from tistream.schema import log_format
from tistream.schema.log_format import LogObject
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.node.tick_jobs import Runner
from tistream_sorter.upkeep.version_index import BYTES_IN, BYTES_OUT
from tistream_upstream.config import ClusterConfig

FAR_TS = 1 << 61
DEATHS = 0.1  # of jobs


class DyingMerger(InlineRunner):
    """Some jobs die after they have written a part of their objects, or all of them."""

    def __init__(self, objects: ObjectStore, fate: random.Random) -> None:
        super().__init__(objects)
        self._fate = fate

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        if self._fate.random() >= DEATHS:
            return super().merge_index(units)
        super().merge_index(units[: self._fate.randrange(len(units) + 1)])
        raise RuntimeError("the executor was lost")


class IndexHistory(History):
    """`keep_ms`: the tenant's retention. `reads`: how often the index was compared with the truth."""

    def __init__(
        self,
        config: ClusterConfig,
        seed: int,
        ms: int = 4_000,
        keep_ms: int | None = None,
        new_runner: Callable[[ObjectStore], Runner] | None = None,
    ) -> None:
        fate = random.Random(seed + 6)
        super().__init__(config, seed, ms, new_runner=new_runner or (lambda objects: DyingMerger(objects, fate)))
        self.reads = 0
        self.more = random.Random(seed + 7)
        self.rows = {
            (key, commit_ts): (op, value, txn_source, start_ts)
            for key, commit_ts, op, value, txn_source, start_ts in self.truth.select(
                "key", "commit_ts", "op", "value", "txn_source", "start_ts"
            ).iter_rows()
        }
        if keep_ms is not None:
            tenant = self.upstream.tenant
            log = LogObject(tenant, 1, 0, FAR_TS, "00", ())
            self.objects.put(layout.schema_log(tenant, 1), log_format.encode(log))
            self.world.keep_ms = keep_ms
            self.world.assign()

    def run(self) -> None:
        for file in arrival(self.upstream, self.rng):
            self.world.push(file)
            self.world.clock.advance(max(0, physical_ms(file.store_and_ts[1]) - self.world.clock.now_ms()))
            self.world.node.tick()
            self.world.node.collect()
            self.something()
            if self.more.random() < 0.7:
                self.world.node.compact()
            if self.more.random() < 0.15:
                self.compare()
            assert self.world.stopped() == []
        self.world.withheld.clear()
        self.settle()
        self.compare()
        assert self.objects.audit.problems == []
        assert self.world.stopped() == []

    def _read(self, reader: PoolReader) -> None:
        """The readers of the base class want all rows from the beginning; `compare` reads in their place."""
        self.compare()

    def settle(self) -> None:
        """Until nothing is left to do, and nothing is planned any more."""
        for _ in range(200):
            self.world.tick()
            self.world.clock.advance(11_000)
            self.world.tick()
            if not self.world.node.compact():
                return
        raise AssertionError("the index never comes to rest")

    def covers(self) -> list[LogSpan]:
        lineage = Lineage(self.objects, self.upstream.tenant)
        return [cover for row in self.world._ordered() for cover in lineage.covers(row, None)]

    def compare(self) -> None:
        """Read all rows at some ts between the base and what is flushed, and compare them with the truth."""
        covers = self.covers()
        views = [cover.log.view for cover in covers]
        states = [view.state for view in views]
        lowest = max([self.upstream.snapshot_ts, *(view.base_ts for view in views)])
        assert lowest <= max([self.upstream.snapshot_ts, *(state.retained_ts for state in states if state)])
        highest = min(view.flushed_ts for view in views)
        if highest < lowest:
            return
        for ts in {lowest, highest, self.more.randint(lowest, highest)}:
            found = {
                at: (one.op, one.value, one.txn_source, one.start_ts)
                for at, one in state_at(self.objects, covers, ts).items()
            }
            newest: dict[bytes, int] = {}
            for key, commit_ts in self.rows:
                if commit_ts <= ts:
                    newest[key] = max(newest.get(key, 0), commit_ts)
            wanted = {at: self.rows[at] for at in newest.items() if self.rows[at][0] == 1}
            assert found == wanted, f"at {ts}"
            self.reads += 1

    def amplification(self) -> list[float]:
        """Bytes written for each byte taken in, by task."""
        counters = [task.durable.counters for task in self.world.node.tasks()]
        return [one[BYTES_OUT] / one[BYTES_IN] for one in counters if one.get(BYTES_IN)]
