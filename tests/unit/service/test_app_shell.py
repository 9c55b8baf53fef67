from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from tistream.clock import ManualClock
from tistream.errors import CorruptObject, Gone, Unavailable, UnknownName
from tistream.service.http.app import new_app


class Probe:
    """An app with one route per kind of trouble."""

    def __init__(self) -> None:
        self.reason: str | None = "still loading"
        self.life: list[str] = []
        self.registry = CollectorRegistry()
        self.app = new_app(
            "probe",
            ready=lambda: self.reason,
            registry=self.registry,
            running=self._running,
            clock=ManualClock(5),
            new_id=lambda: "cafe",
            body_bytes_max=1000,
        )
        _add_routes(self.app)

    @contextmanager
    def _running(self) -> Iterator[None]:
        self.life.append("started")
        yield
        self.life.append("stopped")


def _add_routes(app: FastAPI) -> None:
    troubles = {
        "gone": Gone("too old", {"earliest_ts": "5"}),
        "unknown": UnknownName("no database \ud800"),
        "unavailable": Unavailable("no answer"),
        "corrupt": CorruptObject("a/b", "fails its CRC-32"),
        "bug": ValueError("a secret"),
    }

    @app.get("/trouble/{kind}")
    def trouble(kind: str) -> None:
        raise troubles[kind]

    @app.get("/number/{number}")
    def number(number: int, wait_ms: int = 0) -> int:
        return number + wait_ms

    @app.get("/cut")
    def cut() -> StreamingResponse:
        def lines() -> Iterator[bytes]:
            yield b"one\n"
            raise ValueError("in the middle")

        return StreamingResponse(lines())

    @app.post("/object")
    def members(body: dict[str, int]) -> int:
        return len(body)

    @app.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
def http(probe: Probe) -> Iterator[TestClient]:
    with TestClient(probe.app) as client:
        yield client


def test_health_is_the_process_and_readiness_its_work(probe: Probe, http: TestClient) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    refused = http.get("/readyz")
    assert (refused.status_code, refused.json()["detail"]) == (503, "still loading")
    assert refused.headers["retry-after"] == "1"
    probe.reason = None
    assert http.get("/readyz").status_code == 200
    probe.app.state.stopping.set()
    assert http.get("/readyz").json()["detail"] == "stopping"


def test_loops_live_as_long_as_the_app(probe: Probe) -> None:
    with TestClient(probe.app):
        assert probe.life == ["started"]
    assert probe.life == ["started", "stopped"]


@pytest.mark.parametrize(
    ("path", "status", "code", "detail"),
    [
        ("/trouble/gone", 410, "gone", "too old"),
        ("/trouble/unknown", 404, "unknown-name", "no database \\ud800"),
        ("/trouble/unavailable", 503, "unavailable", "no answer"),
        ("/trouble/corrupt", 500, "corrupt-object", "a/b: fails its CRC-32"),
        ("/nowhere", 404, "not-found", "Not Found"),
    ],
)
def test_errors_are_problems(http: TestClient, path: str, status: int, code: str, detail: str) -> None:
    answer = http.get(path)
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, body["status"], body["type"], body["detail"]) == (
        status,
        status,
        f"tistream:{code}",
        detail,
    )


def test_extra_members_are_in_the_problem(http: TestClient) -> None:
    assert http.get("/trouble/gone").json()["earliest_ts"] == "5"


def test_wrong_method_is_a_problem_that_names_the_right_one(http: TestClient) -> None:
    answer = http.delete("/healthz")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.json()["type"] == "tistream:method-not-allowed"


def test_wrong_parameters_are_400_and_named(http: TestClient) -> None:
    answer = http.get("/number/x?wait_ms=y")
    assert answer.status_code == 400
    assert [(p["in"], p["name"]) for p in answer.json()["parameters"]] == [("path", "number"), ("query", "wait_ms")]


def test_what_is_no_json_is_told_with_the_place(http: TestClient) -> None:
    of_json = {"content-type": "application/json"}
    assert http.post("/object", content=b'{"a": 1}', headers=of_json).json() == 1
    problem = http.post("/object", content=b'{"a": 1, "b": }', headers=of_json).json()
    assert problem["status"] == 400
    assert problem["detail"] == "body: is not valid JSON: Expecting value at character 14"


def test_unexpected_error_tells_nothing_but_its_cause_id(
    http: TestClient, probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = http.get("/trouble/bug")
    assert (answer.status_code, answer.json()["cause_id"]) == (500, "cafe")
    assert "secret" not in answer.text
    [record] = [record for record in caplog.records if record.message == "request failed"]
    assert "a secret" in str(record.exc_info)
    metrics = http.get("/metrics").text
    assert 'tistream_http_failures_total{method="GET",route="/trouble/{kind}"} 1.0' in metrics


def test_failure_in_the_middle_of_a_stream_never_ends_it_as_if_it_were_whole(http: TestClient) -> None:
    with pytest.raises(ValueError, match="in the middle"), http.stream("GET", "/cut") as answer:
        answer.read()


def test_giant_body_is_refused(http: TestClient) -> None:
    assert http.post("/body", content=b"x" * 1000).json() == 1000
    answer = http.post("/body", content=b"x" * 1001)
    assert (answer.status_code, answer.json()["type"]) == (413, "tistream:content-too-large")


def test_metrics_know_routes_not_paths(http: TestClient) -> None:
    http.get("/number/7")
    http.get("/number/8")
    http.get("/secret-tenant")
    text = http.get("/metrics").text
    assert 'tistream_http_request_seconds_count{method="GET",route="/number/{number}",status="200"} 2.0' in text
    assert "secret-tenant" not in text


def test_openapi_is_there_and_no_page_of_a_cdn(http: TestClient) -> None:
    paths = json.loads(http.get("/openapi.json").text)["paths"]
    assert {"/healthz", "/readyz", "/metrics"} <= paths.keys()
    assert http.get("/docs").status_code == 404
