"""One seed: an upstream pushes into a platform that everything befalls; then faults end, and all must be right."""

from __future__ import annotations

import logging
import random
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa
from polars.testing import assert_frame_equal

from support.oracle import COLUMNS
from support.sim.asgi import in_fibers
from support.sim.chaos import Chaos
from support.sim.load import Load, RawLoad, snap_of
from support.sim.platform import SimPlatform
from support.sim.scheduler import Scheduler
from support.sim.threads import SimThreads
from tistream import concurrency
from tistream.errors import AlreadyDiffers, TiStreamError
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.pool.task_log import TaskLog
from tistream.wire.meta import Notification
from tistream.wire.meta_client import MetaClient
from tistream.wire.sorter_client import SorterClient

BEGIN_MS = 1_700_000_000_000
CHAOS_MS = 25_000
RECOVERY_MS = 90_000


class Tracebacks(logging.Handler):
    """Errors that nobody foresaw, as the platform's log has them."""

    EXPECTED = ("the executor was lost",)

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
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
    load: Load
    chaos: Chaos
    rng: random.Random
    ends: list[int] = field(default_factory=list)  # end_ts, once the upstream has finished
    created: bool = False

    # -- the upstream, in a fiber outside of the platform -------------------------------------------------------------

    def push(self) -> None:
        """Put and announce what the stores push, until the chaos is over and the upstream has ended."""
        platform, scheduler = self.platform, self.scheduler
        meta = MetaClient(platform.client(deadline_s=2), platform.of("api")[0].url)
        scheduler.start(platform.outside, "register", self.register)
        begin_ms = scheduler.now_ms
        scheduler.sleep(self.rng.randrange(3_000_000))
        snap = snap_of(self.load)
        platform.objects.put(snap.key, snap.data)
        while scheduler.now_ms < begin_ms + CHAOS_MS:
            scheduler.sleep(self.rng.randrange(300_000))
            for file in self.load.advance(scheduler.now_ms):
                self._put(file, meta)
        self.chaos.stop()
        files, end_ts = self.load.finish(scheduler.now_ms)
        for file in files:
            self._put(file, meta)
        self.ends.append(end_ts)

    def _put(self, file: object, meta: MetaClient) -> None:
        key, data = file.key, file.data  # type: ignore[attr-defined]
        delay_us = self.rng.choice((0, 0, 0, 1_000_000, 4_000_000))
        self.scheduler.after(int(delay_us * self.rng.random()), lambda: self.platform.objects.put(key, data))
        store, ts = file.store_and_ts  # type: ignore[attr-defined]
        if self.rng.random() < 0.7:
            tenant = self.load.tenant
            said = Notification(
                cluster_id=tenant.cluster_id, tenant_id=tenant.tenant_id, store_id=str(store), ts=str(ts)
            )
            self.scheduler.start(self.platform.outside, "announce", lambda: _try(lambda: meta.notify(said)))

    def register(self) -> None:
        """Create the tenant, again and again until it is said to be there."""
        meta = MetaClient(self.platform.client(deadline_s=2), self.platform.of("api")[0].url)
        while not self.created:
            try:
                meta.create_tenant(self.load.tenant.cluster_id, self.load.tenant.tenant_id)
                self.created = True
            except AlreadyDiffers:
                raise
            except TiStreamError:
                self.scheduler.sleep(300_000)

    # -- what it has come to ------------------------------------------------------------------------------------------

    def tasks(self) -> dict[int, TaskLog]:
        """Every task's committed manifests, read from the store itself."""
        found: dict[int, TaskLog] = {}
        for task_id in range(1, self.platform.ranges + 1):
            found[task_id] = TaskLog(self.platform.objects, self.load.tenant, task_id)
            found[task_id].refresh()
        return found

    def pool(self) -> pl.DataFrame:
        """Every committed row, in (commit_ts, start_ts, key) order."""
        tables = [pa.table({}, schema=None)][:0]
        for log in self.tasks().values():
            tables += [read_rows(self.platform.objects, one, Window(0, 2**62)) for one in log.segments]
        frame = pl.DataFrame(schema=COLUMNS) if not tables else pl.from_arrow(pa.concat_tables(tables))
        assert isinstance(frame, pl.DataFrame)
        return frame.select(list(COLUMNS)).sort("commit_ts", "start_ts", "key")

    def settled(self) -> bool:
        """Whether all that was pushed is flushed, or known to be through."""
        return bool(self.ends) and self.progress_ts >= self.ends[0]

    progress_ts: int = 0

    def watch(self) -> None:
        """A fiber that asks the sorters how far they are, as the API does."""
        sorters = SorterClient(self.platform.client(deadline_s=2))
        tenant = self.load.tenant
        while True:
            self.scheduler.sleep(200_000)
            told: dict[int, tuple[int, int]] = {}
            for member in self.platform.of("sorter"):
                try:
                    answer = sorters.tasks(member.url, tenant.cluster_id, tenant.tenant_id)
                except TiStreamError:
                    continue
                for status in answer.tasks:
                    told[status.task_id] = max(
                        told.get(status.task_id, (0, 0)), (status.task_epoch, status.progress_ts)
                    )
            if len(told) == self.platform.ranges:
                self.progress_ts = min(progress for _, progress in told.values())


def _try(call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except TiStreamError:
        return  # a lost announcement costs latency only


@contextmanager
def simulated(seed: int) -> Iterator[World]:
    """A world at its beginning."""
    scheduler = Scheduler(seed, BEGIN_MS)
    rng = random.Random(seed)
    with (
        concurrency.installed(SimThreads(scheduler)),
        in_fibers(),
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory,
    ):
        ranges = rng.choice((1, 2, 4, 7))
        platform = SimPlatform(scheduler, Path(directory), ranges=ranges, skew_ms=rng.choice((0, 0, 2_000)))
        yield World(seed, scheduler, platform, RawLoad(seed), Chaos(platform, rng), rng)


def run(seed: int) -> World:
    """One seed; raises AssertionError with what is wrong."""
    tracebacks = Tracebacks()
    logging.getLogger().addHandler(tracebacks)
    try:
        with simulated(seed) as world:
            world.chaos.begin()
            outside = world.platform.outside
            world.scheduler.start(outside, "push", world.push)
            world.scheduler.start(outside, "watch", world.watch)
            over = lambda: bool(world.scheduler.failures) or world.settled()  # noqa: E731
            done = world.scheduler.run(over, CHAOS_MS + RECOVERY_MS)
            assert not world.scheduler.failures, world.scheduler.failures[0]
            assert not tracebacks.found, tracebacks.found[0]
            assert done, f"seed {seed}: progress {world.progress_ts}, end {world.ends}"
            assert_frame_equal(world.pool(), world.load.rows())
            return world
    finally:
        logging.getLogger().removeHandler(tracebacks)
