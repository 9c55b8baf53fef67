"""Keeps what the owner derives from the heartbeats (beats) of all changefeed workers: among how many workers a tenant's
rate quotas are divided, and which feeds need more or fewer shards. It is in the memory of the owner only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.wire.bulk.changefeeds import WorkerBeat
from tistream_meta.decide.feed_policy import Feed
from tistream_meta.feeds.quota_sharers import QuotaSharers
from tistream_meta.feeds.shard_loads import LoadRules, ShardLoads


class WorkerBoard:
    """Records the beats of all workers. Thread-safe."""

    def __init__(self, clock: Clock, rules: LoadRules | None = None) -> None:
        """`rules` decide how many shards a feed has; None: the usual ones."""
        self._clock = clock
        self._lock = new_lock()
        self._sharers, self._loads = QuotaSharers(), ShardLoads(rules or LoadRules())

    def resizes(self, beat: WorkerBeat, feeds: Iterable[Feed]) -> list[tuple[Feed, int]]:
        """Record what the worker's shards have sent. `feeds`: those of which it holds shards. Returns the feeds that
        must get another number of shards, each with the number."""
        with self._lock:
            return self._loads.record(feeds, beat.reports, self._clock.monotonic_ms())

    def sharers(self, beat: WorkerBeat) -> Mapping[str, int]:
        """Record for which tenants the worker is busy. Returns, for each busy tenant, the number of workers among which
        its rate quotas are divided."""
        with self._lock:
            return self._sharers.record(beat.node_id, beat.busy, self._clock.monotonic_ms())
