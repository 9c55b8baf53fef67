"""What strangers choose never becomes a label: metrics stay as few as the routes."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from tistream.service.http.app import new_app


def test_invented_methods_are_one_label():
    registry = CollectorRegistry()
    app = new_app("probe", ready=lambda: None, registry=registry)

    def samples() -> int:
        return sum(len(list(metric.samples)) for metric in registry.collect())

    with TestClient(app) as http:
        for number in range(3):
            assert http.request(f"INVENTED{number}", "/healthz").status_code == 405
        before = samples()
        for number in range(50):
            http.request(f"AGAIN{number}", "/healthz")
        assert samples() == before
        assert 'method="other"' in http.get("/metrics").text
