"""What it costs to put segments together, and what a pull of one table of many reads without and with it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from bench.inputs.changes import TENANT, Load, seconds, snapshot_ts
from bench.inputs.pulled_pool import PulledPool
from bench.measure import Bench
from support.golden import Delivery
from support.sorter_world import InlineRunner
from support.split_world import SplitWorld
from tistream.decode import warm
from tistream.format.segment import SegmentRef
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.object_store import ObjectStore
from tistream_sorter.collection import CollectRules
from tistream_sorter.compaction import Rewrite, Rewritten

WHAT = (
    "a tenant whose store pushes a file a second, 512 in all, each of 500 transactions of one row over 1,000 tables: "
    "a tick for each, as a sorter node does it in one process with objects in memory, and segments put together once "
    "there are 16, by the usual rules; then a PullTable of one of the tables, from the first ts to the last, by the "
    "API's own reader with nothing in memory before"
)
FILES, TRANSACTIONS, TABLES = 512, 500, 1_000
GRACE_MS = 60_000


def run(bench: Bench) -> None:
    """See WHAT."""
    warm()
    answers = {}
    for name, compacts in (("ticks' segments", False), ("put together", True)):
        world = _World(compacts=compacts)
        pushed = world.push_all()
        view = TaskObjects(world.split.objects, TENANT, 1).follow()
        pool = PulledPool(world.split.objects, view.segments, view.flushed_ts, TABLES, 256 << 20)
        began = time.process_time()
        answer = b"".join(bytes(piece) for piece in pool.pull("bench", "mixed_0"))
        took = time.process_time() - began
        answers[name] = hashlib.sha256(answer).hexdigest()
        requests = sum(done.requests for done in pool.store.traffic().values())
        bench.figure(f"{name}: live segments", len(view.segments), "segments")
        bench.figure(f"{name}: a pull of one table asks", requests, "requests")
        bench.figure(f"{name}: it reads", pool.read_bytes / (1 << 20), "MiB")
        bench.figure(f"{name}: bytes read for each byte sent", pool.read_bytes / len(answer), "bytes")
        bench.figure(f"{name}: processor time of the whole answer", 1000 * took, "ms")
        if compacts:
            _tell_cost(bench, world.runner, pushed, view.segments)
    bench.agree(answers)


def _tell_cost(bench: Bench, runner: Counting, pushed: int, live: Sequence[SegmentRef]) -> None:
    bench.figure("written by it for each byte pushed", runner.written / pushed, "bytes")
    bench.figure("written by it for each byte that is live", runner.written / sum(one.size for one in live), "bytes")
    bench.figure("read by it for each byte pushed", runner.read / pushed, "bytes")
    bench.figure("its processor time, for each GiB pushed", runner.took_s / (pushed / (1 << 30)), "s")
    bench.figure("processor time of its longest piece of work", max(runner.units_s), "s")


class Origin:
    """Whose files they are."""

    tenant = TENANT
    snapshot_ts = snapshot_ts()


class Counting(InlineRunner):
    """Notes what putting segments together takes."""

    def __init__(self, objects: ObjectStore) -> None:
        super().__init__(objects)
        self.read = self.written = 0
        self.took_s = 0.0
        self.units_s: list[float] = []

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        out = []
        for unit in units:
            began = time.process_time()
            done = super().rewrite([unit])
            self.units_s.append(time.process_time() - began)
            self.took_s += self.units_s[-1]
            self.read += sum(took.read_bytes for one in done for took in one.traffic.values())
            self.written += sum(took.written_bytes for one in done for took in one.traffic.values())
            out += done
        return out


class _World:
    """One task of all keys, and its store."""

    def __init__(self, *, compacts: bool) -> None:
        self._compacts = compacts
        self.split = SplitWorld(
            Origin(), collect=CollectRules(GRACE_MS), checkpoint_every=64, new_runner=self._new_runner
        )

    def _new_runner(self, objects: ObjectStore) -> Counting:
        self.runner = Counting(objects)
        return self.runner

    def push_all(self) -> int:
        """How many bytes were pushed."""
        load = Load(FILES * TRANSACTIONS, FILES, stores=1, regions=4, tables=TABLES, rows=True)
        pushed = 0
        for number, second in enumerate(seconds(load)):
            self.split.clock.advance(1_000)
            for key, body in second.files:
                pushed += len(body)
                self.split.push(Delivery(0.0, key, body))
            self.split.tick()
            if self._compacts and self.split.node.compact():
                self.split.tick()
            if number % 60 == 0:
                self.split.node.collect()
        assert self.split.stopped() == []
        return pushed
