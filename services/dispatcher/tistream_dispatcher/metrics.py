"""Metrics of the dispatcher."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class DispatcherMetrics:
    """All metrics of the dispatcher. Create it once for each process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.files = Counter("tistream_dispatcher_files_total", "Change files routed.", registry=registry)
        self.routed_bytes = Counter(
            "tistream_dispatcher_routed_bytes_total",
            "Bytes of change row groups routed by reference.",
            registry=registry,
        )
        self.quarantines = Counter(
            "tistream_dispatcher_quarantines_total",
            "Times that a store was quarantined for a damaged file or a broken chain.",
            registry=registry,
        )
        self.rewinds = Counter(
            "tistream_dispatcher_rewinds_total", "Stores read again because a task had lost files.", registry=registry
        )
        self.collected_files = Counter(
            "tistream_dispatcher_collected_files_total", "Consumed change files deleted.", registry=registry
        )
        self.collected_bytes = Counter(
            "tistream_dispatcher_collected_bytes_total", "Bytes of consumed change files deleted.", registry=registry
        )
        self.collect_failures = Counter(
            "tistream_dispatcher_collect_failures_total",
            "Stores whose consumed files could not all be deleted in a turn; it is tried again.",
            registry=registry,
        )
        self.stores = Gauge("tistream_dispatcher_stores", "Stores that this dispatcher reads.", registry=registry)
        self.quarantined = Gauge("tistream_dispatcher_stores_quarantined", "Stores in quarantine.", registry=registry)
        self.holds = Gauge("tistream_dispatcher_holds", "Holds by stage.", ("stage",), registry=registry)
