"""Metrics of shards: what a scrape shows of each, and nothing of those that have gone."""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry

from support.pull_world import golden_world
from tistream.clock import ManualClock
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Scan
from tistream.read.source import TenantSource
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.changefeeds import FeedReport, FeedShard, Phase, StoppedTableInfo
from tistream_changefeed.shard_metrics import LABELS, ReportAndTally, ShardCollector, ShardTally

NOW_MS = 1_000_000
ORDERS = ("7", "acme", "orders", "0")


def told(
    feed: str = "orders",
    phase: Phase = "running",
    since_ms: int | None = None,
    checkpoint_ms: int | None = NOW_MS - 90_000,
) -> ReportAndTally:
    report = FeedReport(
        shard=FeedShard(cluster_id="7", tenant_id="acme", changefeed_id=feed, shard=0, generation=1),
        epoch=1,
        phase=phase,
        checkpoint_ts=None if checkpoint_ms is None else checkpoint_ms << 18,
        resolved_ts=(NOW_MS - 2_000) << 18,
        rows=12,
        bytes=345,
        since_ms=since_ms,
        skipped=4,
        stopped=[StoppedTableInfo(database="shop", table="a", checkpoint_ts="1", reason="too large", left=False)],
    )
    tally = ShardTally(transactions=3, messages=14, aborted=1, encode_seconds=0.5, flush_seconds=1.5, window_bytes=99)
    tally.failures["sink", "_TRANSPORT"] += 2
    tally.barrier_seconds = 2.5
    return report, tally


class Scrapes:
    """A registry whose shards may change."""

    def __init__(self, *shards: ReportAndTally) -> None:
        self.shards, self._registry = list(shards), CollectorRegistry()
        self._registry.register(
            ShardCollector(lambda: self.shards, ManualClock(NOW_MS), GroupCache(MemoryObjectStore(), 1 << 20))
        )

    def value(self, name: str, labels: tuple[str, ...] = ORDERS, **more: str) -> float | None:
        given = dict(zip(LABELS, labels, strict=True)) | more
        return self._registry.get_sample_value(f"tistream_changefeed_{name}", given)


def test_a_shard_shows_its_lag_behind_the_pool_and_the_pools_age_apart() -> None:
    scrapes = Scrapes(told())
    assert scrapes.value("lag_seconds") == 88
    assert scrapes.value("pool_lag_seconds") == 2


def test_what_a_holder_has_done_is_counted_for_its_shard() -> None:
    scrapes = Scrapes(told())
    names = ("skipped", "rows", "bytes", "transactions", "messages", "aborted", "encoding_seconds", "flushing_seconds")
    assert [scrapes.value(f"{name}_total") for name in names] == [4, 12, 345, 3, 14, 1, 0.5, 1.5]
    assert scrapes.value("window_size_bytes") == 99
    assert scrapes.value("stopped_tables") == 1
    assert scrapes.value("failures_total", stage="sink", cause="_TRANSPORT") == 2
    assert scrapes.value("barrier_seconds_total") == 2.5


def test_retrying_counts_from_the_first_failure_and_is_0_while_it_runs() -> None:
    assert Scrapes(told(phase="retrying", since_ms=NOW_MS - 1_800_000)).value("retrying_seconds") == 1_800
    assert Scrapes(told(phase="running", since_ms=None)).value("retrying_seconds") == 0


def test_a_sink_that_was_never_opened_has_no_lag_yet() -> None:
    assert Scrapes(told(phase="retrying", since_ms=NOW_MS, checkpoint_ms=None)).value("lag_seconds") == 0


def test_a_shard_that_has_moved_away_leaves_no_series_behind() -> None:
    scrapes = Scrapes(told(), told("audit"))
    assert scrapes.value("rows_total", ("7", "acme", "audit", "0")) == 12
    scrapes.shards.pop()
    assert scrapes.value("rows_total", ("7", "acme", "audit", "0")) is None
    assert scrapes.value("rows_total") == 12


def test_a_second_read_of_the_same_rows_is_a_hit_of_the_cache() -> None:
    world, registry = golden_world("everything"), CollectorRegistry()
    cache = GroupCache(world.objects, 64 << 20)
    source = TenantSource(threading.RLock(), lambda: world.history, lambda: world.indexes, cache, lambda: None)
    registry.register(ShardCollector(list, ManualClock(NOW_MS), cache))

    def reads(outcome: str) -> float:
        return registry.get_sample_value("tistream_changefeed_cache_reads_total", {"outcome": outcome}) or 0

    def read() -> None:
        scope = Scope(world.tenant, "shop", "orders")
        list(Scan(source, scope, Position(world.snapshot_ts), world.end_ts, world.budget).batches())

    read()
    hits, misses = reads("hit"), reads("miss")
    read()
    assert misses > 0
    assert (reads("hit") > hits, reads("miss")) == (True, misses)
