"""What a process asks of its object store shows in its metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tistream.errors import NotFoundYet
from tistream.model.ids import TenantKey
from tistream.service.observe.store_metrics import measured
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import Traffic


def test_requests_failures_and_bytes_are_counters_by_kind() -> None:
    registry = CollectorRegistry()
    objects = measured(MemoryObjectStore(), registry)
    objects.put("a", b"12345")
    objects.get_range("a", 1, 3)
    with pytest.raises(NotFoundYet):
        objects.get("b")
    objects.add_all(
        {"get": Traffic(requests=7, read_bytes=100)}, TenantKey("7", "acme")
    )  # what Spark's workers asked for this process
    lines = generate_latest(registry).decode().splitlines()
    for line in [
        'tistream_object_requests_total{kind="put"} 1.0',
        'tistream_object_requests_total{kind="get"} 9.0',
        'tistream_object_failures_total{kind="get"} 1.0',
        'tistream_object_bytes_total{direction="read"} 103.0',
        'tistream_object_bytes_total{direction="written"} 5.0',
    ]:
        assert line in lines
