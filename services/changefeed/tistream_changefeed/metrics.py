"""The metrics of the changefeed service."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BYTES = (1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


class ChangefeedMetrics:
    """The metrics of the whole process. Create it once for each process. shard_metrics.py has the metrics of each
    shard."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shards = Gauge("tistream_changefeed_shards", "Shards that this process holds.", registry=registry)
        self.phases = Gauge(
            "tistream_changefeed_shard_phases",
            "Shards that this process holds, by phase.",
            ("phase",),
            registry=registry,
        )
        self.encode_seconds = Histogram(
            "tistream_changefeed_encode_seconds", "Time to encode the rows of a batch.", registry=registry
        )
        self.flush_seconds = Histogram(
            "tistream_changefeed_flush_seconds",
            "Time from the begin of a sink's transaction to its acknowledgement.",
            registry=registry,
        )
        self.window_bytes = Histogram(
            "tistream_changefeed_window_bytes",
            "Bytes of the rows' messages of a sink's transaction.",
            registry=registry,
            buckets=_BYTES,
        )
        self.undecodable = Counter(
            "tistream_changefeed_undecodable_rows_total",
            "Rows that no schema can decode, each counted once.",
            registry=registry,
        )
