"""All metrics of the sorter. No metric has the tenant as a label."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tistream.format.manifest import Manifest
from tistream.service.observe.metrics import stale_routes
from tistream.wire.sorter import Hold

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class SorterMetrics:
    """Counters and gauges of ticks, of the objects and rows that they wrote, and of failures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tasks = Gauge("tistream_sorter_tasks", "Tasks held.", registry=registry)
        self.stopped = Gauge(
            "tistream_sorter_tasks_stopped", "Tasks that stopped because of an error.", registry=registry
        )
        self.tick_seconds = Histogram(
            "tistream_sorter_tick_seconds",
            "One tick with a Spark job, its commit included unless it is large and runs beside the others.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.file_seconds = Histogram(
            "tistream_sorter_file_seconds",
            "From a file's discovery to the manifest that takes it.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.segments = Counter("tistream_sorter_segments_total", "Segments committed.", registry=registry)
        self.segment_bytes = Counter(
            "tistream_sorter_segment_bytes_total", "Bytes of committed segments.", registry=registry
        )
        self.manifests = Counter("tistream_sorter_manifests_total", "Manifests committed.", registry=registry)
        self.rows = Counter("tistream_sorter_rows_total", "Rows by outcome.", ("what",), registry=registry)
        self.stale_routes = stale_routes(registry)
        self.fenced = Counter("tistream_sorter_fenced_total", "Tasks lost to a newer epoch.", registry=registry)
        self.damaged = Counter(
            "tistream_sorter_damaged_files_total", "Reads of row groups that failed their checks.", registry=registry
        )
        self.compacted = Counter(
            "tistream_sorter_compacted_segments_total", "Segments replaced by compaction.", registry=registry
        )
        self.compacted_bytes = Counter(
            "tistream_sorter_compacted_bytes_total", "Bytes written by compaction.", registry=registry
        )
        self.compact_failures = Counter(
            "tistream_sorter_compact_failures_total", "Compactions that failed.", registry=registry
        )
        self.indexed_bytes = Counter(
            "tistream_sorter_indexed_bytes_total",
            "Bytes of segments that the version index has taken.",
            registry=registry,
        )
        self.index_written_bytes = Counter(
            "tistream_sorter_index_written_bytes_total", "Bytes of runs of the version index.", registry=registry
        )
        self.index_failures = Counter(
            "tistream_sorter_index_failures_total", "Merges of the version index that failed.", registry=registry
        )
        self.bases = Counter("tistream_sorter_base_chunks_total", "Base chunks taken.", registry=registry)
        self.base_failures = Counter(
            "tistream_sorter_base_failures_total", "Base chunks and their jobs that failed.", registry=registry
        )
        self.collected = Counter(
            "tistream_sorter_collected_objects_total", "Objects deleted by garbage collection.", registry=registry
        )
        self.collect_failures = Counter(
            "tistream_sorter_collect_failures_total",
            "Garbage collection runs that failed for a task.",
            registry=registry,
        )
        self.seals = Counter(
            "tistream_sorter_seals_total", "Tasks sealed here, by reason: split or merge.", ("why",), registry=registry
        )
        self.refused = Counter(
            "tistream_sorter_seal_orders_refused_total",
            "Orders to split or merge a task that do not fit it.",
            registry=registry,
        )
        self.broken = Counter(
            "tistream_sorter_invariant_broken_total",
            "Times that a task stopped, by invariant.",
            ("invariant",),
            registry=registry,
        )

    def count_commit(self, manifest: Manifest, before: Mapping[str, int], waited_ms: Iterable[int]) -> None:
        """Count a committed manifest. `before`: the counters in the manifest before it. `waited_ms`: for each of its
        files, the time in ms from its arrival to the commit."""
        self.manifests.inc()
        self.segments.inc(len(manifest.segments))
        self.segment_bytes.inc(sum(segment.size for segment in manifest.segments))
        for what, total in manifest.counters.items():
            self.rows.labels(what).inc(max(0, total - before.get(what, 0)))
        for one in waited_ms:
            self.file_seconds.observe(max(0, one) / 1000)


class HoldCollector(Collector):
    """A Prometheus collector for the holds of this sorter's tasks, that is, the reasons why their watermarks do not
    advance. It examines all slices, so it computes only when the metrics are scraped."""

    STAGES = ("push", "damaged", "sort")

    def __init__(self, holds: Callable[[], Iterable[Hold]]) -> None:
        self._holds = holds

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count the holds of each stage; 0 for a stage without a hold."""
        gauge = GaugeMetricFamily("tistream_sorter_holds", "Holds of the tasks held, by stage.", labels=["stage"])
        tally = Tally(hold.stage for hold in self._holds())
        for stage in self.STAGES:
            gauge.add_metric([stage], tally[stage])
        yield gauge
