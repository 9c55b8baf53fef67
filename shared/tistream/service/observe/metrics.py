"""Prometheus helpers. Each process has one registry, which its `main` creates and passes to the code that needs it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def new_registry() -> CollectorRegistry:
    """Create a registry, with metrics of the process's memory, CPU, file descriptors and garbage collections."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class HttpMetrics:
    """Counts requests by status and route template. Raw paths and names of tenants are never labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "tistream_http_request_seconds",
            "Time from a request's first byte to the beginning of its answer, by route.",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=registry,
        )
        self.failures = Counter(
            "tistream_http_failures_total",
            "Requests that failed with an unexpected exception (each is logged with its cause_id).",
            ("method", "route"),
            registry=registry,
        )


def stale_routes(registry: CollectorRegistry) -> Counter:
    """Create the counter of route tables that were ignored because they were older than one already seen."""
    return Counter(
        "tistream_stale_routes_total",
        "Route tables that were not followed: of an older owner, or older than one that was.",
        registry=registry,
    )


class LoopMetrics:
    """Metrics of the background loops of a process: their runs and errors."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.runs = Counter("tistream_loop_runs_total", "Runs of a background loop.", ("loop",), registry=registry)
        self.errors = Counter(
            "tistream_loop_errors_total", "Runs of a background loop that failed.", ("loop",), registry=registry
        )
