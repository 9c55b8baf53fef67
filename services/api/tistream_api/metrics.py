"""The metrics of the API server. Tenant names are not labels: there may be many, and they are not public."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class ApiMetrics:
    """Metrics of one API server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter(
            "tistream_api_events_total", "Row and ddl events sent, by call.", ("call",), registry=registry
        )
        self.bytes = Counter(
            "tistream_api_sent_bytes_total", "Bytes of pulls sent, by call.", ("call",), registry=registry
        )
        self.pulls = Gauge("tistream_api_pulls", "Pulls under way, by call.", ("call",), registry=registry)
        self.undecodable = Counter(
            "tistream_api_undecodable_rows_total",
            "Rows met that no schema can decode, each counted once; the log names them.",
            registry=registry,
        )
        self._lag = Gauge(
            "tistream_api_resolved_lag_seconds",
            "Wall clock minus resolved_ts of the tenant that is furthest behind.",
            registry=registry,
        )

    def follow_lag(self, lag_seconds: Callable[[], float]) -> None:
        """Set the function that is called at each scrape for the value of the lag, in seconds."""
        self._lag.set_function(lag_seconds)
