"""A simulated TiKV cluster pushing into the simulated platform, and what is true of it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from support import change_files
from support.sim.platform import SimPlatform
from tistream.errors import TiStreamError
from tistream.storage import layout
from tistream_upstream.cluster import Cluster
from tistream_upstream.config import Churn, ClusterConfig, TxnMix
from tistream_upstream.effects import Announce, AskCoverage, Effect, Push, WriteTruth
from tistream_upstream.platform_api import PlatformApi
from tistream_verify.fingerprint import TruthLine
from tistream_verify.record import PullScope

STEP_US = 50_000


def random_config(rng: random.Random, begin_ms: int) -> ClusterConfig:
    """A small cluster in which some things happen often and others never: each seed has its own."""
    often = lambda most: rng.choice((0.0, most / 4, most))  # noqa: E731
    mix = TxnMix(
        one_phase=often(0.4),
        async_commit=often(0.5),
        optimistic=rng.random(),
        abandoned=often(0.2),
        lock_only=often(0.1),
        long=often(0.3),
        bulk=often(0.15),
        bulk_rows=6,
        huge_every_ms=8_000,
        huge_rows=rng.choice((0, 40)),
        late_secondaries=often(0.2),
        late_ms=rng.choice(((200, 3_000), (1_000, 8_000))),
        orphaned=often(0.6),
        rewritten=often(0.4),
        row_locks=often(0.2),
        sourced=often(0.1),
    )
    flapping = rng.random() < 0.15  # agents that begin chain after chain
    churn = Churn(
        per_s=5.0 if flapping else rng.choice((0.3, 1.0, 3.0)),
        split=often(1.5),
        batch_split=often(0.6),
        merge=often(1.0),
        move=often(2.0),
        restart=8.0 if flapping else often(0.8),
        crash=often(0.4),
        gone=often(0.2),
        lost_push=rng.random(),
        new_chain=1.0 if flapping else rng.random(),
        late_upload=0.6 if flapping else often(0.6),
        repeated_file=often(0.1),
        unannounced=often(0.5),
        idle_untold=often(0.1),
        slow_store=often(0.2),
        slow_ms=(500, 2_500),
        skew_ms=rng.choice((0, 200, 900)),
    )
    return ClusterConfig(
        begin_ms=begin_ms,
        stores=rng.choice((1, 3, 4, 8)),  # of many, some lead one region: nothing but that holds a watermark back
        regions=rng.choice((1, 3, 8)),
        databases=rng.choice((1, 2)),
        tables=rng.choice((1, 3, 5)),
        columns=rng.choice((2, 5)),
        rows_per_s=rng.choice((6.0, 20.0)),
        txns_per_s=rng.choice((2.0, 6.0)),
        rows_max=rng.choice((8, 60)),
        bursts=often(0.1),
        mix=mix,
        churn=churn,
        ddl_per_min=rng.choice((0.0, 6.0, 20.0)),
        ddl_cancelled=0.5,
        warm_ms=rng.choice((0, 3_000)),
        rows_per_group=rng.choice((4, 65_536)),
        keep_truth=True,
    )


class Upstream:
    """Does what the cluster wants done: each store's files one after the other, at that store's pace."""

    def __init__(self, seed: int, platform: SimPlatform, rng: random.Random) -> None:
        self._platform, self._scheduler, self._rng = platform, platform.scheduler, rng
        self.cluster = Cluster(random_config(rng, self._scheduler.now_ms), seed)
        self.tenant = self.cluster.config.tenant
        self.truth: list[TruthLine] = []
        self._damaged = rng.choice((0.0, 0.0, 0.03))
        self._slow = rng.choice((0.02, 0.1, 0.25))
        self.spoilt = 0
        self.scans = 0  # after a loss
        self.chains_anew = 0  # begun by stores that had pushed before
        self.quiet = False  # no transaction is open any more, and watermarks go on
        self._queues: dict[int, deque[Push | Announce]] = {}
        self._pushed: set[int] = set()
        self._api = PlatformApi(platform.of("api")[0].url, self.tenant, platform.client(deadline_s=5))

    @property
    def snapshot_ts(self) -> int:
        return self.cluster.snapshot_ts

    def some_scope(self, rng: random.Random) -> PullScope:
        """A database, or a table, that is there at the snapshot; it may be renamed or dropped later."""
        catalog = self.cluster.catalog
        tables = catalog.usable()
        if not tables or rng.random() < 0.3:
            return PullScope(rng.choice(list(catalog.databases.values())).name)
        table = rng.choice(tables)
        return PullScope(catalog.databases[table.database_id].name, table.name)

    def run(self, until_ms: int, calm_ms: int) -> int:
        """Fiber: push until then, end every transaction, push on for `calm_ms` without any, then the last files.

        Returns:
            The ts through which everything is known then.
        """
        scheduler, cluster = self._scheduler, self.cluster
        scheduler.start(self._platform.outside, "register", self._register)
        scheduler.after(self._rng.randrange(3_000_000), self._snapshot)
        while scheduler.now_ms < until_ms:
            scheduler.sleep(STEP_US)
            self._take(cluster.advance(scheduler.now_ms))
        cluster.stop()
        while not cluster.quiet:
            scheduler.sleep(STEP_US)
            self._take(cluster.advance(scheduler.now_ms))
        self.quiet = True
        calm_until_ms = scheduler.now_ms + calm_ms
        while scheduler.now_ms < calm_until_ms:
            scheduler.sleep(STEP_US)
            self._take(cluster.advance(scheduler.now_ms))
        end_ts, effects = cluster.finish()
        self._take(effects)
        return end_ts

    def _snapshot(self) -> None:
        self._platform.objects.put(layout.schema_snap(self.tenant), self.cluster.schema_snap)

    def _register(self) -> None:
        self._api.create_tenant(lambda seconds: self._scheduler.sleep(int(seconds * 1e6)), tries=1_000)

    def _take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteTruth(_, line):
                    self.truth.append(TruthLine.parse(line))
                case AskCoverage():
                    question = effect
                    self._scheduler.start(self._platform.outside, "ask", lambda question=question: self._ask(question))
                case Push() | Announce():
                    self._queue(effect)

    def _queue(self, effect: Push | Announce) -> None:
        if effect.store_id not in self._queues:
            self._queues[effect.store_id] = deque()
            store_id = effect.store_id
            self._scheduler.start(self._platform.outside, f"store-{store_id}", lambda: self._store(store_id))
        self._queues[effect.store_id].append(effect)

    def _store(self, store_id: int) -> None:
        """Fiber: one agent's uploads; now and then a slow one."""
        queue = self._queues[store_id]
        while True:
            if not queue:
                self._scheduler.sleep(STEP_US)
                continue
            effect = queue.popleft()
            slow = not self.quiet and self._rng.random() < self._slow
            self._scheduler.sleep(self._rng.randrange(4_000_000) if slow else self._rng.randrange(5_000, 60_000))
            if isinstance(effect, Push):
                if self._rng.random() < self._damaged:
                    self._put_damaged(effect)
                self._platform.objects.put(effect.key, effect.body)
                self.chains_anew += effect.prev_ts == 0 and effect.store_id in self._pushed
                self._pushed.add(effect.store_id)
            else:
                said = effect
                self._scheduler.start(self._platform.outside, "announce", lambda said=said: self._announce(said))

    def _put_damaged(self, push: Push) -> None:
        """A file that is cut off or has a bit flipped, for a while: long enough, or not, to be taken for damaged."""
        spoilt = change_files.truncated(push.body)
        if self._rng.random() < 0.5 and push.rows:
            spoilt = change_files.flipped_change_group(push.body)
        self._platform.objects.put(push.key, spoilt)
        self.spoilt += 1
        self._scheduler.sleep(self._rng.randrange(4_000_000))

    def _announce(self, said: Announce) -> None:
        try:
            self._api.announce(said)
        except TiStreamError:
            return  # a lost announcement costs latency only

    def _ask(self, question: AskCoverage) -> None:
        """Fiber: how far is the span covered? Asked until there is an answer that can be used."""
        while True:
            try:
                slices = self._api.coverage(question.span)
            except TiStreamError:
                slices = []
            if slices and self.cluster.coverage(question.request, slices):
                self.scans += 1
                return
            self._scheduler.sleep(500_000)
