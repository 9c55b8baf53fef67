"""One seed of changefeeds: workers and meta servers that die, hang and are cut off, a Kafka that fails, and a recorded
tenant whose resolved_ts rises meanwhile. The judge compares what is in Kafka with an undisturbed read."""

from __future__ import annotations

import logging
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from support import golden
from support.model_kafka import ModelKafka
from support.pull_world import golden_world
from support.sim.asgi import in_fibers
from support.sim.changefeed_judge import Feed, Judge
from support.sim.changefeed_worker import PlayedPool, Workers
from support.sim.chaos import Chaos
from support.sim.operator import DRAINED_US, Operator
from support.sim.platform import SimPlatform
from support.sim.scheduler import Scheduler
from support.sim.threads import SimThreads
from support.sim.world import Tracebacks
from tistream import concurrency
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.feeds.shard_loads import LoadRules

GOLDEN = "everything"
FEEDS = (Feed("rows", "open-protocol", "changes", 3, shards=2, shards_max=4), Feed("canal", "canal-json", "canal", 2))
PLAYED_MS = 16_000  # the recording's resolved_ts rises to its end within this time
FAULTS_MS = 20_000
RECOVERY_MS = 150_000  # a transaction that a dead worker leaves may stay open for a minute
LOOK_US = 300_000
LOADS = LoadRules(window_ms=1_500, split_bytes_s=100_000, merge_bytes_s=20_000, merge_windows=1)


@dataclass
class FeedChaos(Chaos):
    """Besides what befalls every platform: Kafka."""

    kafka: ModelKafka | None = None
    copies: bool = False  # whether the meta database has both feeds: an older copy of it is another platform

    def _some_storm(self) -> None:
        assert self.kafka is not None
        if self.rng.random() < 0.3:
            super()._some_storm()
        elif self.rng.random() < 0.4:
            self._tell("no broker answers")
            self.kafka.down = True
            self._later(self.rng.uniform(100, 6_000), self._broker_back)
        else:
            name = self.rng.choice(("lost", "unanswered", "refused"))
            self.storm(self.kafka.faults, name, self.rng.uniform(0.05, 0.4), self.rng.uniform(500, 4_000))

    def _broker_back(self) -> None:
        assert self.kafka is not None
        self.kafka.down = False

    def _back_up(self) -> None:
        if self.copies:
            super()._back_up()
        elif self.going:
            self._later(500, self._back_up)

    def stop(self) -> None:
        """Stop all faults."""
        super().stop()
        assert self.kafka is not None
        self.kafka.down = False
        self.kafka.faults.lost = self.kafka.faults.unanswered = self.kafka.faults.refused = 0.0


def drain_worker(operator: Operator) -> None:
    """Drain a random worker for a while."""

    def ask(meta: MetaClient, node_id: str) -> None:
        meta.drain(node_id)
        operator.platform.scheduler.sleep(DRAINED_US)
        meta.drain(node_id, draining=False)

    node = operator.rng.choice(operator.platform.of("changefeed"))
    _tried(operator, partial(ask, node_id=node.name))


def pause_feed(operator: Operator) -> None:
    """Pause a random feed for a while."""
    path = f"{feeds_path()}/{operator.rng.choice(FEEDS).name}"

    def ask(meta: MetaClient) -> None:
        meta.request("POST", f"{path}/pause", None)
        operator.platform.scheduler.sleep(operator.rng.randrange(2_000_000))

    _tried(operator, ask)
    for _ in range(20):
        if _tried(operator, lambda meta: meta.request("POST", f"{path}/resume", None)):
            return
        operator.platform.scheduler.sleep(500_000)


def _tried(operator: Operator, ask: Any) -> bool:
    try:
        ask(MetaClient(operator.platform.client(), operator.platform.meta_urls))
    except TiStreamError as error:
        logging.getLogger(__name__).debug("an operator gives up", extra={"error": str(error)})
        return False
    return True


def feeds_path() -> str:
    """The path of the tenant's feeds at a meta server."""
    tenant = golden_tenant()
    return f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/changefeeds"


def golden_tenant() -> TenantKey:
    """The tenant of the recording."""
    return golden.load(GOLDEN).tenant


@dataclass
class FeedWorld:
    """One seed."""

    scheduler: Scheduler
    platform: SimPlatform
    kafka: ModelKafka
    pool: PlayedPool
    chaos: FeedChaos
    tracebacks: Tracebacks
    rng: random.Random
    judges: Sequence[Judge]
    states: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each feed, as it was last told
    epochs: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        """Start all fibers."""
        self.chaos.begin(lambda: self.kafka.decided > 5)
        outside = self.platform.outside
        self.scheduler.start(outside, "play", self._play)
        self.scheduler.start(outside, "create", self._create)
        self.scheduler.after(FAULTS_MS * 1_000, self.chaos.stop)

    def _play(self) -> None:
        """Fiber: the pool's resolved_ts rises, in steps of any size."""
        first, last = self.pool.ts, self.pool.world.end_ts
        steps = sorted(self.rng.uniform(0, 1) for _ in range(self.rng.choice((5, 40, 200))))
        begun_us = self.scheduler.now_us
        for share in steps:
            self.scheduler.sleep(max(0, begun_us + int(share * PLAYED_MS * 1_000) - self.scheduler.now_us))
            self.pool.ts = max(self.pool.ts, first + int(share * (last - first)))
        self.pool.ts = last

    def _create(self) -> None:
        """Fiber: the tenant and its feeds, asked for until they are there; then the feeds' states, all the time."""
        tenant = golden_tenant()
        self._until(f"/v1/clusters/{tenant.cluster_id}/tenants", {"tenant_id": tenant.tenant_id})
        for judge in self.judges:
            start, end = str(self.pool.world.snapshot_ts), str(judge.end_ts)
            body = {"changefeed_id": judge.feed.name, "sink_uri": judge.feed.uri, "start_ts": start, "end_ts": end}
            own = {"shards": judge.feed.shards, "shards-max": judge.feed.shards_max}
            config = {"tistream": {name: number for name, number in own.items() if number is not None}}
            self._until(feeds_path(), body | {"start_given": True, "config": config})
        self.chaos.copies = True
        with self._http() as http:
            while True:
                self.scheduler.sleep(LOOK_US)
                for judge in self.judges:
                    self._look(http, judge)

    def _look(self, http: httpx.Client, judge: Judge) -> None:
        url = self.rng.choice(self.platform.of("meta")).url
        try:
            answer = http.get(f"{url}{feeds_path()}/{judge.feed.name}", follow_redirects=True)
        except httpx.TransportError:
            return
        if answer.status_code == 200:
            told = answer.json()
            self.states[judge.feed.name] = told
            self.epochs[judge.feed.name] = max(self.epochs[judge.feed.name], told["epoch"])
            judge.told.append((self.scheduler.now_ms, int(told["checkpoint_ts"])))

    def _until(self, path: str, body: dict[str, Any]) -> None:
        with self._http() as http:
            while True:
                self.scheduler.sleep(LOOK_US)
                try:
                    answer = http.post(self.rng.choice(self.platform.of("meta")).url + path, json=body)
                except httpx.TransportError:
                    continue
                if answer.status_code in (200, 201):
                    return
                assert answer.status_code in (429, 503), answer.text

    def _http(self) -> httpx.Client:
        return httpx.Client(transport=self.platform.transport(), timeout=5, trust_env=False)

    def over(self) -> bool:
        """Whether every feed has finished, or something is wrong."""
        if self.scheduler.failures or self.tracebacks.found:
            return True
        return all(self._state(judge) in ("finished", "failed") for judge in self.judges) and self.kafka.settled()

    def _state(self, judge: Judge) -> str | None:
        found = self.states.get(judge.feed.name)
        return None if found is None else found["state"]

    def check(self) -> None:
        """Raise AssertionError with what is wrong."""
        assert not self.scheduler.failures, self.scheduler.failures[0]
        assert not self.tracebacks.found, self.tracebacks.found[0]
        assert not self.pool.barriers, self.pool.barriers[0]
        for judge in self.judges:
            assert self._state(judge) == "finished", self.states.get(judge.feed.name)
            judge.check()

    def met(self) -> Counter[str]:
        """How often what happened: for sums over many seeds."""
        states = Counter(one.state for one in self.kafka.transactions)
        return Counter(
            {
                "transactions committed": states["committed"],
                "transactions aborted": states["aborted"],
                "transactions that timed out": self.kafka.timed_out,
                "requests of producers that were fenced": self.kafka.fenced,
                "commits whose answer was lost": self.kafka.lost_commits,
                "holders": sum(self.epochs.values()),
                "cuts": sum(one["revision"] for one in self.states.values()),
                "strikes": len(self.chaos.told),
            }
        )


@contextmanager
def simulated(seed: int) -> Iterator[FeedWorld]:
    """A world at its beginning; what befalls it is the seed's choice."""
    pool = golden_world(GOLDEN)
    scheduler = Scheduler(seed, physical_ms(pool.end_ts) + 60_000)
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
            rng = random.Random(f"changefeeds {seed}")
            kafka = ModelKafka(lambda: scheduler.now_ms, random.Random(f"kafka {seed}"))
            played = PlayedPool(pool, pool.snapshot_ts)
            windows, rows = rng.choice((2_000, 20_000, 8 << 20)), rng.choice((100, 1_000, 32_768))
            workers = Workers(played, kafka, random.Random(f"workers {seed}"), windows, rows)
            platform = SimPlatform(
                scheduler,
                Path(directory),
                ranges=1,
                metas=rng.choice((1, 2)),
                changefeeds=rng.choice((2, 3)),
                feed_loads=LOADS,
                # A feed whose cut was forgotten stands still until a person acts (core/progress.py, check_revision).
                remembered="SELECT changefeed_id, revision FROM changefeeds ORDER BY 1",
                new_changefeed=workers.new_app,
                skew_ms=rng.choice((0, 2_000)),
            )
            workers.platform = platform
            chaos = FeedChaos(
                platform,
                random.Random(f"chaos {seed}"),
                rng.choice((700, 1_500, 3_000)),
                acts=(drain_worker, pause_feed),
                kafka=kafka,
            )
            judges = [Judge(kafka, pool.tenant, feed, GOLDEN, pool.end_ts) for feed in FEEDS]
            try:
                yield FeedWorld(scheduler, platform, kafka, played, chaos, tracebacks, rng, judges)
            finally:
                scheduler.end()
                platform.end()
    finally:
        logger.removeHandler(tracebacks)
        logger.setLevel(level)
        requests.setLevel(told)


def run(seed: int) -> FeedWorld:
    """One seed to its end. Raises AssertionError with what is wrong."""
    with simulated(seed) as world:
        world.begin()
        world.scheduler.run(world.over, FAULTS_MS + RECOVERY_MS)
        world.check()
        return world
