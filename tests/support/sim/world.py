"""One seed: an upstream pushes into a platform that everything befalls; then faults end, and all must be right."""

from __future__ import annotations

import logging
import math
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import polars as pl
import pyarrow as pa
from polars.testing import assert_frame_equal

from support.effort import FULL
from support.oracle import COLUMNS
from support.sim.asgi import in_fibers
from support.sim.chaos import Chaos, Script
from support.sim.consumer import Consumer
from support.sim.load import Upstream
from support.sim.platform import SHARD_WORKS, SimPlatform
from support.sim.scheduler import Scheduler
from support.sim.threads import SimThreads
from tistream import concurrency
from tistream.errors import TiStreamError
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.pool.task_log import TaskLog
from tistream.storage import layout
from tistream.wire.clients.sorter_client import SorterClient

BEGIN_MS = 1_760_000_000_000
CHAOS_MS = 20_000
LOAD_MS = 23_000  # the load goes on for a while without faults
CALM_MS = 12_000  # then only watermarks come: the lag must come down meanwhile
LAG_MAX_S = 5.0
RECOVERY_MS = 40_000
READERS_MS = 8_000  # for a store that moves at the very end
SETTLE_MS = 75_000  # a merge that was ordered just before is taken back after a minute, which is written
IDLE_MS = 12_000
IDLE_EVERY = 8  # one seed in so many also rests


class Tracebacks(logging.Handler):
    """Errors that nobody foresaw, as the platform's log has them; and how often it said what."""

    EXPECTED = ("the executor was lost",)

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[str] = []
        self.said: Counter[str] = Counter()
        self.doubts = 0  # ticks whose commit is not known
        self.moved = 0  # tasks handed over once the next sorter was prepared

    def emit(self, record: logging.LogRecord) -> None:
        self.said[record.getMessage()] += record.name.startswith("tistream")
        if record.getMessage() == "tasks" and "prepared" in getattr(record, "why", ()):
            self.moved += record.tasks
        self.doubts += "unknown whether the write happened" in str(getattr(record, "reason", ""))
        if record.exc_info and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(record.exc_info[1]))
            if not any(expected in text for expected in self.EXPECTED):
                self.found.append(f"{record.name}: {record.getMessage()}: {text}")


@dataclass
class World:
    """Everything of one seed."""

    seed: int
    scheduler: Scheduler
    platform: SimPlatform
    upstream: Upstream
    chaos: Chaos
    consumers: list[Consumer]
    tracebacks: Tracebacks
    end_ts: int = 0  # once the upstream has finished
    ended_ms: int = 0  # when the last file was given to its store
    over_ms: int = 0
    lags: list[tuple[int, float]] = field(default_factory=list)  # (virtual ms, seconds) as status told them
    problems: list[str] = field(default_factory=list)
    in_chaos: dict[str, int] = field(default_factory=dict)  # what had been done when the faults ended

    def begin(self) -> None:
        """Set everything going."""
        self.chaos.begin(lambda: self.platform.objects.audit.ticks > 0)
        outside = self.platform.outside
        self.scheduler.start(outside, "upstream", self._push)
        self.scheduler.start(outside, "watch", self._watch)
        self.scheduler.start(outside, "pages", self.consumers[0].page)
        self.scheduler.start(outside, "stream", self.consumers[1].follow)
        self.scheduler.start(outside, "scoped", self.consumers[2].page)
        self.scheduler.start(outside, "status", self._ask_status)
        self.scheduler.after(CHAOS_MS * 1_000, self._end_chaos)

    def _end_chaos(self) -> None:
        self.in_chaos = {
            "events": sum(len(consumer.events) for consumer in self.consumers),
            "ticks": self.platform.objects.audit.ticks,
        }
        self.chaos.stop()

    def _push(self) -> None:
        self.end_ts = self.upstream.run(self.scheduler.now_ms + LOAD_MS, CALM_MS)
        self.ended_ms = self.scheduler.now_ms

    def _ask_status(self) -> None:
        """A fiber that asks how late the tenant is, and why: whenever it is late, something must be named."""
        tenant = self.upstream.tenant
        path = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/status"
        with httpx.Client(transport=self.platform.transport(), timeout=5, trust_env=False) as http:
            while not self.end_ts:
                self.scheduler.sleep(700_000)
                try:
                    answer = http.get(self.platform.of("api")[0].url + path)
                except httpx.TransportError:
                    continue
                if answer.status_code == 200:
                    told = answer.json()
                    lag = math.inf if told["lag_seconds"] is None else told["lag_seconds"]
                    self.lags.append((self.scheduler.now_ms, lag))
                    if lag > LAG_MAX_S and told["held_by"] is None:
                        self.problems.append(f"late, and nothing is named: {told}")

    def _watch(self) -> None:
        """A fiber that asks the sorters how far they are, as the API does: what they say must stay true."""
        sorters = SorterClient(self.platform.client(deadline_s=2))
        tenant = self.upstream.tenant
        while True:
            self.scheduler.sleep(300_000)
            for member in self.platform.of("sorter"):
                try:
                    answer = sorters.tasks(member.url, tenant.cluster_id, tenant.tenant_id)
                except TiStreamError:
                    continue
                for status in answer.tasks:
                    self.platform.objects.audit.progress(status.task_id, status.manifest, status.progress_ts)

    @property
    def recovery_s(self) -> float:
        """Virtual seconds from the last file until every consumer had everything."""
        return (self.over_ms - self.ended_ms) / 1000

    def met(self) -> Counter[str]:
        """How often what happened: for sums over many seeds."""
        said, audit, totals = self.tracebacks.said, self.platform.objects.audit, self.upstream.cluster.totals
        return Counter(
            {
                "events": sum(len(consumer.events) for consumer in self.consumers),
                "events told during the faults": self.in_chaos["events"],
                "ticks": audit.ticks,
                "ticks during the faults": self.in_chaos["ticks"],
                "manifests": audit.manifests,
                "checkpoints": audit.checkpoints,
                "sources of pending rows": audit.sources,
                "segments written early": audit.sealed,
                "records of what was served": audit.recorded,
                "objects of tasks deleted": audit.deletes,
                "segments put together": audit.compacted,
                "runs of the version index": audit.index.runs,
                "base runs": audit.index.folds,
                "source files deleted": audit.files.deleted,
                "large jobs": self.platform.large_jobs,
                "requests between processes": self.platform.network.requests,
                "strikes": len(self.chaos.told),
                "databases restored": sum(": forget " in line for line in self.chaos.told),
                "tenants whose tasks were given back": said["tasks continue from their manifests"],
                "manifests with many chains of a store": audit.crowded,
                "tasks lost to a newer epoch": said["task is lost"] + said["task is held by a newer epoch"],
                "replaced processes that ended themselves": len(
                    set(self.chaos.replaced) & set(self.platform.superseded)
                ),
                "owners that lost their lease": said["lost the ownership"],
                "commits in doubt": self.tracebacks.doubts,
                "jobs that died": said["job failed"],
                "scans after a loss": self.upstream.scans,
                "damaged files": self.upstream.spoilt,
                "DDLs": totals.ddl_jobs,
                "DDLs cancelled": totals.ddl_cancelled,
                "chains begun anew": self.upstream.chains_anew,
                "stores retired": said["store is retired"],
                "stores that waited for a file": said["store waits for a file"],
                "uploads that landed late": self.upstream.cluster.late_uploads.landed,
                "chains that a late upload broke": self.upstream.cluster.late_uploads.broken,
                "events of one table or database": len(self.consumers[2].events),
                "meta servers": len(self.platform.of("meta")),
                "elections": said["owner now"],
                "tasks moved": self.tracebacks.moved,
                "nodes drained": said["node drains"],
                "tasks sealed": self.platform.objects.audit.seals,
                "tasks that carried on others": self.platform.objects.audit.heirs,
                "dispatchers": len(self.platform.of("dispatcher")),
                "stores that went to another dispatcher": said["store is another dispatcher's"],
                "answers": sum(consumer.answers for consumer in self.consumers),
            }
        )

    # -- what it has come to ------------------------------------------------------------------------------------------

    def over(self) -> bool:
        """Whether every consumer has everything, or something is wrong."""
        if self.scheduler.failures or self.tracebacks.found or self.platform.objects.audit.problems or self.problems:
            return True
        return self.end_ts > 0 and all(consumer.resolved_ts >= self.end_ts for consumer in self.consumers)

    def check(self) -> None:
        """Raise AssertionError with what is wrong."""
        assert not self.scheduler.failures, self.scheduler.failures[0]
        assert not self.tracebacks.found, self.tracebacks.found[0]
        assert not self.platform.objects.audit.problems, self.platform.objects.audit.problems
        assert not self.problems, self.problems[0]
        assert not self.platform.network.broken_answers, self.platform.network.broken_answers
        awake = [process for process in self.chaos.replaced if process.alive]
        assert not awake, f"replaced, and still there: {awake}"
        for consumer in self.consumers:
            assert not consumer.problems, consumer.problems[0]
            consumer.validators.require_clean()
        waiting = [consumer.name for consumer in self.consumers if consumer.resolved_ts < self.end_ts]
        assert self.end_ts, "the upstream has not come to its end"
        assert not waiting, f"{waiting} never came to {self.end_ts}"  # invariant 21
        assert self.lags, "status was never told"
        # A store may be slow of its own, for as long as its agent pleases: the lag comes down in between.
        assert min(lag for _, lag in self.lags[-8:]) < LAG_MAX_S, f"the lag does not come down: {self.lags[-20:]}"
        assert self.each_store_has_one_reader(), self.readers()
        assert_frame_equal(self.pool(), self.upstream.cluster.truth.rows)
        for consumer in self.consumers:
            _require_equal(consumer.name, consumer.events, consumer.of_scope(self.upstream.cluster.truth.events))

    def readers(self) -> dict[int, list[str]]:
        """{store: the dispatchers that read it}, of every store that has pushed."""
        tenant, platform = self.upstream.tenant, self.platform
        prefixes = platform.objects.list_after(layout.push_prefix(tenant), delimiter="/")
        ids = (layout.parse_store_prefix(tenant, entry.key) for entry in prefixes)
        found: dict[int, list[str]] = {store_id: [] for store_id in ids if store_id is not None}
        for member in platform.of("dispatcher"):
            process, app = platform.network.listening.get(f"127.0.0.1:{member.port}", (None, None))
            if process is not None and app is not None and process.alive:
                for store in app.state.driver.stores(None, None).stores:
                    found.setdefault(store.store_id, []).extend([member.name] if store.read else [])
        return found

    def each_store_has_one_reader(self) -> bool:
        return all(len(names) == 1 for names in self.readers().values())

    def rest(self) -> None:
        """Nothing is pushed any more: after the last word of each task nothing is written (invariant 24)."""
        self.scheduler.run(lambda: False, SETTLE_MS)
        before = self.platform.objects.writes
        self.scheduler.run(lambda: False, IDLE_MS)
        written = self.platform.objects.writes - before
        assert not written, f"{written} objects were written though nothing came"

    def pool(self) -> pl.DataFrame:
        """Every committed row of the user's tables, in (commit_ts, start_ts, key) order: of each segment that any task
        that there was names; those of a parent are its children's too."""
        segments = {}
        audit = self.platform.objects.audit
        for task_id in audit.last.keys() - audit.files.forgotten:
            log = TaskLog(self.platform.objects, self.upstream.tenant, task_id)
            log.refresh()
            segments |= {segment.key: segment for segment in log.segments}
        tables = [read_rows(self.platform.objects, one, Window(0, 2**62)) for one in segments.values()]
        frame = pl.DataFrame(schema=COLUMNS) if not tables else pl.from_arrow(pa.concat_tables(tables))
        assert isinstance(frame, pl.DataFrame)
        return frame.select(list(COLUMNS)).sort("commit_ts", "start_ts", "key")


def _require_equal(name: str, found: list[dict[str, object]], wanted: list[dict[str, object]]) -> None:
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        assert one == other, f"{name}: event {number} is {one}, not {other}"
    assert len(found) == len(wanted), f"{name}: {len(found)} events, not {len(wanted)}: {(found + wanted)[-1]}"


@contextmanager
def simulated(
    seed: int, script: Script | None = None, dispatchers: int | None = None, retention_ms: int | None = None
) -> Iterator[World]:
    """A world at its beginning; what befalls it is the seed's choice, or the script's. So is the number of dispatchers,
    unless it is told."""
    scheduler = Scheduler(seed, BEGIN_MS)
    tracebacks = Tracebacks()
    logger, requests = logging.getLogger(), logging.getLogger("httpx")
    level, told = logger.level, requests.level
    logger.addHandler(tracebacks)
    logger.setLevel(logging.INFO)
    requests.setLevel(logging.WARNING)  # as in the platform's processes: else a line a request
    try:
        with (
            concurrency.installed(SimThreads(scheduler)),
            in_fibers(),
            tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory,
        ):
            rng = random.Random(f"world {seed}")
            skew_ms = rng.choice((0, 0, 2_000))
            ranges, apis = rng.choice((1, 2, 4, 7)), rng.choice((1, 2))
            readers = dispatchers or random.Random(f"dispatchers {seed}").choice((1, 2, 3))
            metas = random.Random(f"metas {seed}").choice((1, 1, 2, 3))
            platform = SimPlatform(
                scheduler,
                Path(directory),
                ranges=ranges,
                apis=apis,
                dispatchers=readers,
                metas=metas,
                skew_ms=skew_ms,
                retention_ms=retention_ms,
                shard_works=SHARD_WORKS if FULL or retention_ms is None else SHARD_WORKS[1:],
            )
            upstream = Upstream(seed, platform, rng)
            every_ms = rng.choice((1_500, 3_000, 8_000))
            chaos = Chaos(platform, random.Random(f"chaos {seed}"), every_ms, script)
            consumers = [
                Consumer(platform, upstream.tenant, upstream.snapshot_ts, random.Random(f"{name} {seed}"), name)
                for name in ("pages", "stream")
            ]
            scope = upstream.some_scope(random.Random(f"scope {seed}"))
            scoped = random.Random(f"scoped {seed}")
            consumers.append(Consumer(platform, upstream.tenant, upstream.snapshot_ts, scoped, str(scope), scope))
            try:
                yield World(seed, scheduler, platform, upstream, chaos, consumers, tracebacks)
            finally:
                scheduler.end()  # fibers that wait for ever would keep everything in memory
                platform.end()
    finally:
        logger.removeHandler(tracebacks)
        logger.setLevel(level)
        requests.setLevel(told)


def run(seed: int, script: Script | None = None, dispatchers: int | None = None) -> World:
    """One seed, from its beginning to rest; raises AssertionError with what is wrong."""
    with simulated(seed, script, dispatchers) as world:
        world.begin()
        world.scheduler.run(world.over, LOAD_MS + CALM_MS + RECOVERY_MS)
        world.over_ms = world.scheduler.now_ms
        if not world.scheduler.failures:
            world.scheduler.run(world.each_store_has_one_reader, READERS_MS)
        if world.end_ts and seed % IDLE_EVERY == 0:
            world.rest()
        world.check()
        return world
