"""One seed of a platform whose tenant has a log backup as its only source: a recorded log, put by put, while processes
die, hang and are cut off. At no time may a consumer be told more than a checkpoint covers; at the end it has exactly
what the recorded TiDB showed. With a full backup, the tenant begins in the middle of the recording, and the rows that
were there before come from the backup."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from support import compare
from support.cut_set import CutSet
from support.effort import FULL
from support.log_backup import LogSet
from support.sim.asgi import in_fibers
from support.sim.chaos import TASK_ACTS, Chaos
from support.sim.consumer import Consumer
from support.sim.platform import SHARD_WORKS, SimPlatform
from support.sim.scheduler import Scheduler
from support.sim.threads import SimThreads
from support.sim.world import Tracebacks
from tistream import concurrency
from tistream.logbackup import prefix
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.storage import layout
from tistream_upstream.platform_api import PlatformApi

PUTS_MS = 20_000  # the whole log arrives within this time
FAULTS_MS = 24_000
RECOVERY_MS = 60_000
BACKFILL_MS = 90_000  # more, where the chunks of a backfill become runs first, some in each job
URL, BACKUP_URL = "s3://upstream/log", "s3://upstream/full"


@dataclass
class LogWorld:
    """One seed of the simulated platform with a log backup. `made`: the recording as a tenant that begins with a full
    backup; None without one. `begin_ts`: where the tenant begins."""

    recorded: LogSet
    made: CutSet | None
    begin_ts: int
    scheduler: Scheduler
    platform: SimPlatform
    chaos: Chaos
    consumers: list[Consumer]
    tracebacks: Tracebacks
    rng: random.Random
    checkpoint_ts: int = 0
    problems: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Start all fibers."""
        self.chaos.begin(lambda: self.platform.objects.audit.ticks > 0)
        outside = self.platform.outside
        self.scheduler.start(outside, "upstream", self._replay)
        self.scheduler.start(outside, "register", self._register)
        self.scheduler.start(outside, "watch", self._watch)
        self.scheduler.start(outside, "pages", self.consumers[0].page)
        self.scheduler.start(outside, "stream", self.consumers[1].follow)
        self.scheduler.after(FAULTS_MS * 1_000, self.chaos.stop)

    def _replay(self) -> None:
        """Fiber: BR's and TiKV's puts, in the recorded order."""
        puts = self.recorded.puts
        pauses = [self.rng.expovariate(1.0) for _ in puts]
        for (key, body), pause in zip(puts, pauses, strict=True):
            self.scheduler.sleep(int(pause / sum(pauses) * PUTS_MS * 1_000))
            if key.startswith(prefix.CHECKPOINTS):
                self.checkpoint_ts = max(self.checkpoint_ts, int.from_bytes(body, "little"))
            self.platform.bucket(URL).put(key, body)

    def _register(self) -> None:
        """Fiber: the tenant, its schema, and the source, asked for until they are there."""
        tenant = self.consumers[0].tenant
        wanted: dict[str, Any] = {"kind": "log-backup", "url": URL}
        if self.made is None:
            self.platform.objects.put(layout.schema_snap(tenant), self.recorded.pushed.schema_snap.data)
        else:
            upstream = prefix.parse_backupmeta(dict(self.recorded.puts)[prefix.BACKUPMETA]).cluster_id
            for key, body in self.made.backup(1, cluster_id=upstream).items():
                self.platform.bucket(BACKUP_URL).put(key, body)
            wanted["snapshot"] = {"kind": "br-full", "url": BACKUP_URL}
        api = PlatformApi(self.platform.of("api")[0].url, tenant, self.platform.client(deadline_s=5))
        api.create_tenant(lambda seconds: self.scheduler.sleep(int(seconds * 1e6)), tries=1_000)
        path = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/sources"
        with httpx.Client(transport=self.platform.transport(), timeout=5, trust_env=False) as http:
            while True:
                try:
                    answer = http.post(self.platform.of("api")[0].url + path, json=wanted)
                except httpx.TransportError:
                    self.scheduler.sleep(300_000)
                    continue
                if answer.status_code == 201:
                    return
                # Until the log begins there is nothing that could be a source.
                if answer.status_code not in (404, 422, 429, 503):
                    self.problems.append(f"the source was refused: {answer.status_code} {answer.text}")
                    return
                self.scheduler.sleep(300_000)

    def _watch(self) -> None:
        """Fiber: no reader is told more than what the checkpoint covers (invariant 29)."""
        while True:
            self.scheduler.sleep(50_000)
            for consumer in self.consumers:
                if consumer.resolved_ts > max(self.checkpoint_ts, self.begin_ts):
                    self.problems.append(f"{consumer.name}: {consumer.resolved_ts} is above {self.checkpoint_ts}")

    def over(self) -> bool:
        """Whether every consumer has all events, or a problem was found."""
        if self.scheduler.failures or self.tracebacks.found or self.platform.objects.audit.problems or self.problems:
            return True
        return all(consumer.resolved_ts >= self.recorded.end_ts for consumer in self.consumers)

    def check(self) -> None:
        """Raise AssertionError with what is wrong."""
        assert not self.scheduler.failures, self.scheduler.failures[0]
        assert not self.tracebacks.found, self.tracebacks.found[0]
        assert not self.platform.objects.audit.problems, self.platform.objects.audit.problems
        assert not self.problems, self.problems[0]
        for consumer in self.consumers:
            assert not consumer.problems, consumer.problems[0]
            consumer.validators.require_clean()
            assert consumer.resolved_ts >= self.recorded.end_ts, f"{consumer.name} stands at {consumer.resolved_ts}"
            if self.made is None:
                assert compare.tenant_differences(self.recorded.pushed, consumer.events) == []
                continue
            assert compare.order_differences(consumer.events) == []
            found = compare.row_differences(self.made.set_, consumer.events, above=self.begin_ts)
            assert found == [], "old values of rows from before the log are those of the backup"


@contextmanager
def simulated(seed: int, recorded: LogSet, made: CutSet | None) -> Iterator[LogWorld]:
    """A world at its beginning."""
    begin_ts = recorded.start_ts if made is None else made.t0
    scheduler = Scheduler(seed, physical_ms(recorded.end_ts) + 60_000)
    tracebacks = Tracebacks()
    logger, requests = logging.getLogger(), logging.getLogger("httpx")
    level, told = logger.level, requests.level
    logger.addHandler(tracebacks)
    logger.setLevel(logging.INFO)
    requests.setLevel(logging.WARNING)
    try:
        with (
            concurrency.installed(SimThreads(scheduler)),
            in_fibers(),
            tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory,
        ):
            rng = random.Random(f"log world {seed}")
            ranges, metas = rng.choice((1, 3)), rng.choice((1, 2))
            works = SHARD_WORKS if FULL else SHARD_WORKS[1:]
            platform = SimPlatform(scheduler, Path(directory), ranges=ranges, metas=metas, ingests=2, shard_works=works)
            chaos = Chaos(platform, random.Random(f"chaos {seed}"), rng.choice((1_500, 3_000)), acts=TASK_ACTS)
            pushed = recorded.pushed.tenant
            tenant = TenantKey(pushed.cluster_id, pushed.tenant_id)
            consumers = [
                Consumer(platform, tenant, begin_ts, random.Random(f"{name} {seed}"), name)
                for name in ("pages", "stream")
            ]
            try:
                yield LogWorld(recorded, made, begin_ts, scheduler, platform, chaos, consumers, tracebacks, rng)
            finally:
                scheduler.end()
                platform.end()
    finally:
        logger.removeHandler(tracebacks)
        logger.setLevel(level)
        requests.setLevel(told)


def run(seed: int, recorded: LogSet, made: CutSet | None = None) -> LogWorld:
    """One seed to its end. Raises AssertionError with what is wrong."""
    with simulated(seed, recorded, made) as world:
        world.begin()
        last_ms = PUTS_MS + FAULTS_MS + RECOVERY_MS + (0 if made is None else BACKFILL_MS)
        world.scheduler.run(world.over, last_ms)
        world.check()
        return world
