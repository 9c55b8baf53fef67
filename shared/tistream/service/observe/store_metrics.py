"""Metrics of a process's requests to its object store, by kind of request. The store's bill depends on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from tistream.storage.measured import MeasuredObjectStore, Traffic
from tistream.storage.object_store import ObjectStore


def measured(objects: ObjectStore, registry: CollectorRegistry) -> MeasuredObjectStore:
    """Wrap a store, so that its requests and bytes are counted in the registry."""
    counted = MeasuredObjectStore(objects)
    registry.register(StoreTraffic(counted.traffic))
    return counted


class StoreTraffic(Collector):
    """A Prometheus collector that exports a store's totals. The label `kind` is one of
    tistream.storage.measured.KINDS."""

    def __init__(self, totals: Callable[[], Mapping[str, Traffic]]) -> None:
        self._totals = totals

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The store's totals so far, as metrics."""
        requests = CounterMetricFamily(
            "tistream_object_requests", "Requests to the object store, by kind; those that failed too.", labels=["kind"]
        )
        failures = CounterMetricFamily(
            "tistream_object_failures", "Of them those that failed: not there, refused, no answer.", labels=["kind"]
        )
        size = CounterMetricFamily("tistream_object_bytes", "Bytes of bodies, by direction.", labels=["direction"])
        totals = self._totals()
        for kind, total in totals.items():
            requests.add_metric([kind], total.requests)
            failures.add_metric([kind], total.failures)
        size.add_metric(["read"], sum(total.read_bytes for total in totals.values()))
        size.add_metric(["written"], sum(total.written_bytes for total in totals.values()))
        return requests, failures, size
