"""Metrics of the ingest service."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class IngestMetrics:
    """All Prometheus metrics of the ingest service. Create it once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.releases = Counter(
            "tistream_ingest_releases_total", "Releases of log backups executed.", registry=registry
        )
        self.sources = Gauge("tistream_ingest_sources", "Sources that this process runs.", registry=registry)
        self.states = Gauge("tistream_ingest_source_states", "Sources by state.", ("state",), registry=registry)
        self.chunks = Counter(
            "tistream_ingest_base_chunks_total", "Base chunks of backfills written.", registry=registry
        )
        self.chunk_bytes = Counter("tistream_ingest_base_chunk_bytes_total", "Their bytes.", registry=registry)
        self.collected = Counter(
            "tistream_ingest_collected_objects_total",
            "Objects of ended backfills and restores deleted.",
            registry=registry,
        )
        self.lag = Gauge(
            "tistream_ingest_checkpoint_lag_seconds",
            "The highest age of a source's checkpoint.",
            registry=registry,
        )
