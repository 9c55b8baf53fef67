"""Every route of every service but the probes wants the token of a service: by the documents of the real apps."""
# Attack: every internal route without a token, with garbage, or with a token of another key, expired, of a user, or
#   for metrics; paths that resemble the probes

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from support.app_surfaces import apps
from support.in_process import AppClient
from tistream.clock import ManualClock
from tistream.service.settings import SettingsError
from tistream.wire.auth.service_token import Caller, sign

KEY, OTHER = b"k" * 32, b"o" * 32
NOW_S = 1_800_000_000
METRICS_TOKEN = "m" * 40
INSIDE = ("dispatcher", "meta", "schema", "sorter")
PROBES = {"/healthz", "/readyz"}
CALLER = Caller("api-1", "api")
GOOD = f"Bearer {sign(KEY, CALLER, NOW_S)}"
WRONG = {
    "none": None,
    "empty": "",
    "no bearer": GOOD.replace("Bearer", "Basic"),
    "garbage": "Bearer garbage",
    "another key": f"Bearer {sign(OTHER, CALLER, NOW_S)}",
    "expired": f"Bearer {sign(KEY, CALLER, NOW_S - 91)}",
    "a user's": f"Bearer tst_{'0' * 16}_{'a' * 43}",
    "the metrics token": f"Bearer {METRICS_TOKEN}",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FastAPI]:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "service.key").write_bytes(base64.b64encode(KEY) + b"\n")
    (folder / "metrics.token").write_text(f"{METRICS_TOKEN}\n")
    settings = {"service_key_file": folder / "service.key", "metrics_token_file": folder / "metrics.token"}
    made = apps(ManualClock(NOW_S * 1000), **settings)
    return {name: build() for name, build in made.items()}


def requests_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """(method, path) of every route, and of some that there are not."""
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            yield method.upper(), path.replace("{", "").replace("}", "")
    yield from (("GET", "/openapi.json"), ("GET", "/nowhere"), ("DELETE", "/healthz/"), ("GET", "//healthz"))
    yield from (("GET", "/healthz/../v1/tasks"), ("GET", "/%68ealthz/x"), ("OPTIONS", "/metrics"))


@pytest.mark.parametrize("service", INSIDE)
@pytest.mark.parametrize("wrong", WRONG)
def test_no_route_answers_without_the_token_of_a_service(built: dict[str, FastAPI], service: str, wrong: str) -> None:
    http = AppClient(built[service], answers_failures=True)
    headers = {} if WRONG[wrong] is None else {"authorization": str(WRONG[wrong])}
    tried = 0
    for method, path in requests_of(built[service]):
        if path in PROBES or (path == "/metrics" and wrong == "the metrics token"):
            continue
        answer = http.request(method, path, headers=headers)
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["type"] == "tistream:unauthenticated"
        tried += 1
    assert tried > 6


@pytest.mark.parametrize("service", INSIDE)
def test_with_the_token_it_is_the_route_that_answers(built: dict[str, FastAPI], service: str) -> None:
    http = AppClient(built[service], answers_failures=True, headers={"authorization": GOOD})
    assert http.get("/openapi.json").status_code == 200
    assert http.get("/metrics").status_code == 200
    assert http.get("/nowhere").status_code == 404
    lower = AppClient(built[service], headers={"authorization": GOOD.replace("Bearer", "bearer")})
    assert lower.get("/openapi.json").status_code == 200


@pytest.mark.parametrize("service", INSIDE)
def test_probes_and_prometheus_come_without_it(built: dict[str, FastAPI], service: str) -> None:
    http = AppClient(built[service])
    assert http.get("/healthz").status_code == 200
    assert http.get("/readyz").status_code in (200, 503)
    assert http.get("/metrics", headers={"authorization": f"Bearer {METRICS_TOKEN}"}).status_code == 200
    text = http.get("/metrics", headers={"authorization": GOOD}).text
    assert 'tistream_http_request_seconds_count{method="GET",route="/metrics",status="200"}' in text


def test_what_is_refused_is_counted(built: dict[str, FastAPI]) -> None:
    http = AppClient(built["meta"])
    http.get("/v1/tasks")
    assert 'status="401"' in http.get("/metrics", headers={"authorization": GOOD}).text


def test_the_routes_of_the_api_are_not_guarded_here(built: dict[str, FastAPI]) -> None:
    """Users have tokens of their own."""
    http = AppClient(built["api"])
    assert http.get("/openapi.json").status_code == 200
    assert http.get("/metrics").status_code == 200  # auth is off


@pytest.mark.parametrize("wrong", [name for name in WRONG if name != "the metrics token"])
def test_an_api_with_auth_guards_its_metrics(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "service.key").write_bytes(base64.b64encode(KEY))
    (tmp_path / "metrics.token").write_text(METRICS_TOKEN)
    files = {"service_key_file": tmp_path / "service.key", "metrics_token_file": tmp_path / "metrics.token"}
    http = AppClient(apps(ManualClock(NOW_S * 1000), **files, auth="on")["api"]())
    headers = {} if WRONG[wrong] is None else {"authorization": str(WRONG[wrong])}
    unheard = wrong == "a user's"  # the server has not been told of any: it cannot say that this is none
    assert http.get("/metrics", headers=headers).status_code == (503 if unheard else 401)
    for good in (GOOD, f"Bearer {METRICS_TOKEN}"):
        assert http.get("/metrics", headers={"authorization": good}).status_code == 200


@pytest.mark.parametrize("service", [*INSIDE, "api"])
def test_a_key_file_that_is_of_no_use_is_told(tmp_path: Path, service: str) -> None:
    (tmp_path / "service.key").write_text("too short")
    with pytest.raises(SettingsError, match=r"service\.key"):
        apps(ManualClock(), service_key_file=tmp_path / "service.key")[service]()
