"""Metrics of the agent."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tistream.model.ts import physical_ms
from tistream_agent.core.received.counts import ENTRY_TYPES, ERROR_KINDS, OUTCOMES, Counts
from tistream_agent.core.territory import PIECE_STATES
from tistream_agent.status import TerritoryStatus

_DROPPED = ("late_events", "rows_outside", "empty_repeats", "early_resolved")


class AgentMetrics:
    """All Prometheus metrics of the agent. Create it once per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registrations = Counter(
            "tistream_agent_registrations_total",
            "Registrations of regions at TiKV, by outcome: their scan ended, TiKV refused them, or the stream ended.",
            ("outcome",),
            registry=registry,
        )
        self.errors = Counter(
            "tistream_agent_errors_total",
            "Subscriptions that TiKV ended, and streams that could not be used, by kind of error.",
            ("kind",),
            registry=registry,
        )
        self.entries = Counter(
            "tistream_agent_entries_total", "Rows that enter change files, by type.", ("type",), registry=registry
        )
        self.scan_rows = Counter(
            "tistream_agent_scan_rows_total",
            "Rows that enter change files and came before the end of their subscription's scan.",
            registry=registry,
        )
        self.received = Counter(
            "tistream_agent_received_bytes_total", "Bytes received on change streams.", registry=registry
        )
        self.streams_ended = Counter(
            "tistream_agent_streams_ended_total", "Change streams that ended.", registry=registry
        )
        self.dropped = Counter(
            "tistream_agent_dropped_total", "Events that no file needs, by reason.", ("reason",), registry=registry
        )
        self.clock_regressions = Counter(
            "tistream_agent_clock_regressions_total", "Resolved ts below an earlier one.", registry=registry
        )
        self.files = Counter("tistream_agent_files_total", "Change files written.", registry=registry)
        self.put_seconds = Histogram(
            "tistream_agent_put_seconds", "Time to encode a file and to put it.", registry=registry
        )
        self.put_failures = Counter(
            "tistream_agent_put_failures_total", "Files that could not be encoded.", registry=registry
        )
        self.buffer = Gauge(
            "tistream_agent_buffer_bytes", "Bytes of rows that are in no durable file.", registry=registry
        )
        self.reading_stopped = Counter(
            "tistream_agent_reading_stopped_seconds_total",
            "Time for which streams were not read, because the buffer was full.",
            registry=registry,
        )
        self.resolved_lag = Gauge(
            "tistream_agent_resolved_lag_seconds",
            "Age of the lowest ts up to which all changes are in files.",
            registry=registry,
        )
        self.held_ts = Gauge("tistream_agent_gc_held_ts", "TSO of the hold on garbage collection.", registry=registry)
        self.hold_lag = Gauge(
            "tistream_agent_gc_hold_lag_seconds", "Age of the hold on garbage collection.", registry=registry
        )
        self.territories = Gauge("tistream_agent_territories", "Territories that the agent holds.", registry=registry)
        self.subscriptions = Gauge(
            "tistream_agent_subscriptions",
            "Key ranges of all territories, by state: subscribed, or to be.",
            ("state",),
            registry=registry,
        )
        self.fenced = Gauge("tistream_agent_fenced", "1 if another process took the territory over.", registry=registry)
        self.pd_calls = Counter("tistream_agent_pd_calls_total", "Calls to PD.", ("rpc",), registry=registry)
        self.pd_failures = Counter(
            "tistream_agent_pd_failures_total", "Calls to PD without an answer.", registry=registry
        )
        for counter, values in (
            (self.registrations, OUTCOMES),
            (self.errors, ERROR_KINDS),
            (self.entries, ENTRY_TYPES.values()),
            (self.dropped, _DROPPED),
        ):
            for value in values:
                counter.labels(value)  # a rate needs the 0 before the first one

    def count(self, counts: Counts, before: Counts) -> None:
        """Add what a territory has received and dropped between `before` and `counts` to the counters."""
        self.clock_regressions.inc(counts.clock_regressions - before.clock_regressions)
        self.scan_rows.inc(counts.scan_rows - before.scan_rows)
        for reason in _DROPPED:
            self.dropped.labels(reason).inc(getattr(counts, reason) - getattr(before, reason))
        for counter, now, then in (
            (self.registrations, counts.registrations, before.registrations),
            (self.errors, counts.errors, before.errors),
            (self.entries, counts.entries, before.entries),
        ):
            for value, number in now.items():
                counter.labels(value).inc(number - then[value])

    def measure(self, statuses: Sequence[TerritoryStatus], now_ms: int) -> None:
        """Set the gauges about territories: each is a sum over the territories, or the value of the worst one."""
        self.territories.set(len(statuses))
        self.buffer.set(sum(one.buffer_bytes for one in statuses))
        for state in PIECE_STATES:
            self.subscriptions.labels(state).set(sum(one.by_state.get(state, 0) for one in statuses))
        self.fenced.set(any(one.state == "fenced" for one in statuses))
        held = [int(one.held_ts) for one in statuses if int(one.held_ts)]
        self.resolved_lag.set(max((one.lag_ms for one in statuses), default=0) / 1_000)
        self.held_ts.set(min(held, default=0))
        self.hold_lag.set(max(0, now_ms - physical_ms(min(held))) / 1_000 if held else 0)
