"""Metrics of the schema registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class SchemaMetrics:
    """All Prometheus metrics of the schema registry. Create it once per process. Names of tenants are never labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tenants = Gauge("tistream_schema_tenants", "Tenants followed.", registry=registry)
        self.records = Counter("tistream_schema_records_total", "Schema records taken.", registry=registry)
        self.silent = Counter(
            "tistream_schema_sorter_failures_total",
            "Requests for progress that a sorter did not answer.",
            registry=registry,
        )
