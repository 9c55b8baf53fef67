"""Metrics of each shard that a worker holds. They are computed at each scrape from the reports of the holders, so that
no series is left of a shard that has moved away. The labels name the tenant and its feed, so access to /metrics of a
worker shows which feeds exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tistream.clock import Clock
from tistream.model.ts import physical_ms
from tistream.read.group_cache import GroupCache
from tistream.wire.bulk.changefeeds import FeedReport

LABELS = ("cluster", "tenant", "feed", "shard")


@dataclass(slots=True)
class ShardTally:
    """Counts what a holder has done since it began. One thread writes the counters; others may read them at any
    time."""

    transactions: int = 0  # acknowledged
    messages: int = 0  # in them
    aborted: int = 0  # transactions that were not acknowledged
    encode_seconds: float = 0.0
    flush_seconds: float = 0.0
    window_bytes: int = 0  # of the rows' messages in the newest transaction that had rows
    buffer_bytes: int = 0  # of encoded messages that are not acknowledged yet
    undecoded: int = 0  # values of columns that the feed does not need
    barrier_seconds: float = 0.0  # of waiting for other shards at DDLs
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)  # failed steps, by stage and cause


ReportAndTally = tuple[FeedReport, ShardTally]


class ShardCollector(Collector):
    """A Prometheus collector of the metrics of the shards that `reports` returns, and of the `cache` of row groups that
    they share."""

    def __init__(self, reports: Callable[[], Iterable[ReportAndTally]], clock: Clock, cache: GroupCache) -> None:
        self._reports, self._clock, self._cache = reports, clock, cache

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Compute all metrics for a scrape."""
        reports, now_ms = list(self._reports()), self._clock.now_ms()
        yield _gauge("lag_seconds", "From what the pool has resolved to what is in the sink.", reports, _lag)
        yield _gauge(
            "pool_lag_seconds",
            "Age of what the pool has resolved, as the worker has seen it.",
            [one for one in reports if one[0].resolved_ts],
            lambda report, _: max(0, now_ms - physical_ms(report.resolved_ts)) / 1000,
        )
        yield _gauge(
            "retrying_seconds",
            "For how long the shard has not got a step done; 0 while it runs.",
            reports,
            lambda report, _: _retrying(report, now_ms),
        )
        yield _gauge(
            "window_size_bytes",
            "Bytes of the rows' messages in the newest transaction.",
            reports,
            lambda _, tally: tally.window_bytes,
        )
        yield _gauge(
            "buffer_bytes",
            "Bytes of encoded messages that the sink has not acknowledged.",
            reports,
            lambda _, tally: tally.buffer_bytes,
        )
        yield _gauge(
            "stopped_tables",
            "Tables that have stopped, because an event of them cannot be sent, while the others go on.",
            reports,
            lambda report, _: len(report.stopped),
        )
        yield _counter(
            "skipped",
            "Events that are in the dead letters, not in their topic.",
            reports,
            lambda report, _: report.skipped,
        )
        yield _counter(
            "rows", "Row events in the sink, since the feed was created.", reports, lambda report, _: report.rows
        )
        yield _counter(
            "bytes",
            "Bytes of messages in the sink, since the feed was created.",
            reports,
            lambda report, _: report.bytes,
        )
        yield _counter(
            "transactions", "Transactions that the sink acknowledged.", reports, lambda _, tally: tally.transactions
        )
        yield _counter("messages", "Messages that the sink acknowledged.", reports, lambda _, tally: tally.messages)
        yield _counter(
            "aborted", "Transactions that the sink did not acknowledge.", reports, lambda _, tally: tally.aborted
        )
        yield _counter("encoding_seconds", "Time spent on encoding.", reports, lambda _, tally: tally.encode_seconds)
        yield _counter(
            "flushing_seconds", "Time spent on waiting for the sink.", reports, lambda _, tally: tally.flush_seconds
        )
        yield _counter(
            "barrier_seconds",
            "Time spent on waiting for other shards at DDLs.",
            reports,
            lambda _, tally: tally.barrier_seconds,
        )
        yield _counter(
            "undecoded_values",
            "Values that were not decoded, because column selectors leave them out.",
            reports,
            lambda _, tally: tally.undecoded,
        )
        failures = CounterMetricFamily(
            "tistream_changefeed_failures",
            "Failed steps of a shard, by stage and by the sink's name of the error.",
            labels=(*LABELS, "stage", "cause"),
        )
        for report, tally in reports:
            for names, count in sorted(tally.failures.items()):
                failures.add_metric((*_values(report), *names), count)
        yield failures
        reads = CounterMetricFamily(
            "tistream_changefeed_cache_reads",
            "Reads of row groups, or of events made of them, that the cache had (hit) or not (miss).",
            labels=("outcome",),
        )
        reads.add_metric(("hit",), self._cache.hits + self._cache.work.hits)
        reads.add_metric(("miss",), self._cache.misses)
        yield reads


Value = Callable[[FeedReport, ShardTally], float]


def _gauge(name: str, text: str, reports: Iterable[ReportAndTally], value: Value) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"tistream_changefeed_{name}", text, labels=LABELS)
    for report, tally in reports:
        family.add_metric(_values(report), value(report, tally))
    return family


def _counter(name: str, text: str, reports: Iterable[ReportAndTally], value: Value) -> CounterMetricFamily:
    family = CounterMetricFamily(f"tistream_changefeed_{name}", text, labels=LABELS)
    for report, tally in reports:
        family.add_metric(_values(report), value(report, tally))
    return family


def _values(report: FeedReport) -> tuple[str, ...]:
    of = report.shard
    return of.cluster_id, of.tenant_id, of.changefeed_id, str(of.shard)


def _lag(report: FeedReport, _: ShardTally) -> float:
    if report.checkpoint_ts is None:
        return 0.0
    return max(0, physical_ms(report.resolved_ts) - physical_ms(report.checkpoint_ts)) / 1000


def _retrying(report: FeedReport, now_ms: int) -> float:
    if report.phase != "retrying" or report.since_ms is None:
        return 0.0
    return max(0, now_ms - report.since_ms) / 1000
