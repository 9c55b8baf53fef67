"""Metrics of the changefeed service."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class ChangefeedMetrics:
    """All metrics of the changefeed service. Create it once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shards = Gauge("tistream_changefeed_shards", "Shards that this process holds.", registry=registry)
        self.phases = Gauge(
            "tistream_changefeed_shard_phases",
            "Shards that this process holds, by phase.",
            ("phase",),
            registry=registry,
        )
        self.lag = Gauge(
            "tistream_changefeed_lag_seconds",
            "The highest lag of a shard, from the pool to its sink.",
            registry=registry,
        )
        self.transactions = Counter(
            "tistream_changefeed_transactions_total", "Transactions that sinks acknowledged.", registry=registry
        )
        self.messages = Counter(
            "tistream_changefeed_messages_total", "Messages that sinks acknowledged.", registry=registry
        )
        self.failures = Counter(
            "tistream_changefeed_failures_total", "Failed steps of shards, by stage.", ("stage",), registry=registry
        )
        self.undecodable = Counter(
            "tistream_changefeed_undecodable_rows_total",
            "Rows that no schema can decode, each counted once.",
            registry=registry,
        )
