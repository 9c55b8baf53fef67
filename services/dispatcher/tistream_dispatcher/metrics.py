"""Metrics of the dispatcher."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from tistream.storage.measured import Traffic as Totals


class DispatcherMetrics:
    """Declared in one place; made once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.files = Counter("tistream_dispatcher_files_total", "Change files routed.", registry=registry)
        self.read_bytes = Counter(
            "tistream_dispatcher_read_bytes_total", "Bytes of footers and watermarks read.", registry=registry
        )
        self.routed_bytes = Counter(
            "tistream_dispatcher_routed_bytes_total",
            "Bytes of change row groups routed by reference.",
            registry=registry,
        )
        self.requests = Counter(
            "tistream_dispatcher_object_requests_total", "Object store requests by kind.", ("kind",), registry=registry
        )
        self.quarantines = Counter(
            "tistream_dispatcher_quarantines_total",
            "Times that a store was quarantined for a damaged file or a broken chain.",
            registry=registry,
        )
        self.rewinds = Counter(
            "tistream_dispatcher_rewinds_total", "Stores read again because a task had lost files.", registry=registry
        )
        self.quarantined = Gauge("tistream_dispatcher_stores_quarantined", "Stores in quarantine.", registry=registry)
        self.holds = Gauge("tistream_dispatcher_holds", "Holds by stage.", ("stage",), registry=registry)


class Traffic:
    """Carries the object store's totals over into counters, which can only be raised."""

    def __init__(self, metrics: DispatcherMetrics) -> None:
        self._metrics = metrics
        self._requests: dict[str, int] = {}
        self._read_bytes = 0

    def count(self, totals: Mapping[str, Totals]) -> None:
        """Raise the counters to these totals."""
        for kind, total in totals.items():
            self._metrics.requests.labels(kind).inc(total.requests - self._requests.get(kind, 0))
            self._requests[kind] = total.requests
        read_bytes = sum(total.read_bytes for total in totals.values())
        self._metrics.read_bytes.inc(read_bytes - self._read_bytes)
        self._read_bytes = read_bytes
