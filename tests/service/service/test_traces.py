"""Spans of requests and of calls between services, as a collector gets them; and a collector that does not."""
# Attack: `traceparent` in fifteen malformed forms; secrets in paths, queries, headers and errors, searched for in
#   all exported spans

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CollectorRegistry

from support import plain_http
from support.certificates import Authority
from support.collector import Collector, Sent, collecting, traced
from support.http_world import Server
from support.logged_lines import logged_lines
from support.platform import free_port
from support.waiting import PATIENCE_S, eventually
from tistream import cause, trace
from tistream.clock import SystemClock
from tistream.concurrency import new_executor
from tistream.errors import Unavailable
from tistream.service.http.app import new_app
from tistream.service.http.peer_clients import PeerClients
from tistream.service.http.tls import server_context
from tistream.service.http.traces import begin_traces, end_traces
from tistream.service.observe import otel
from tistream.service.observe.otel import QUEUE_SPANS
from tistream.service.settings import ServiceSettings, SettingsError, TlsSettings, load_settings
from tistream.trace import Context
from tistream.wire.clients.client import HttpClient

log = logging.getLogger(__name__)

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SERVER, CLIENT = 2, 3  # kinds of spans, in OTLP


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def new(name: str, *, public: bool = False, peers: PeerClients | None = None) -> FastAPI:
    return new_app(name, ready=lambda: None, registry=CollectorRegistry(), peers=peers, guarded=not public)


@contextmanager
def served(app: FastAPI) -> Iterator[Server]:
    server = Server(app)
    try:
        yield server
    finally:
        server.stop()


def far_app(peers: PeerClients | None = None) -> FastAPI:
    """A service that is asked by another."""
    app = new("far", peers=peers)

    @app.get("/v1/clusters/{cluster_id}/tenants/{tenant_id}/rows/{key}")
    def work(cluster_id: str, tenant_id: str, key: str) -> StreamingResponse:
        log.info("working")
        return StreamingResponse(iter([b"do", b"ne"]))

    @app.get("/fails")
    def fails() -> None:
        raise ValueError("a secret")

    return app


def near_app(far: str, http: HttpClient | None = None) -> FastAPI:
    """A service whose callers are outside; it asks `far`, from another thread."""
    app, executor = new("near", public=True), new_executor("helpers", 1)
    http = http or HttpClient()

    @app.get("/pulls/{name}", response_class=PlainTextResponse)
    def pull(name: str) -> str:
        log.info("asking")
        return executor.submit(http.request, "GET", f"{far}/v1/clusters/7/tenants/{name}/rows/top-secret").result().text

    @app.get("/fails")
    def fails() -> str:
        return http.request("GET", f"{far}/fails").text

    return app


@pytest.fixture
def far() -> Iterator[Server]:
    with served(far_app()) as server:
        yield server


@pytest.fixture
def near(far: Server) -> Iterator[Server]:
    with served(near_app(far.url)) as server:
        yield server


def get(url: str, **headers: str) -> httpx.Response:
    return plain_http.get(url, headers=headers)


def all_of(collector: Collector, count: int) -> list[Sent]:
    """So many spans, once they have come."""
    eventually(lambda: len(collector.spans()) >= count)
    found = collector.spans()
    assert len(found) == count, [span.name for span in found]
    return found


def test_a_request_and_what_it_asks_of_another_service_are_one_trace(near: Server, collector: Collector) -> None:
    with traced(collector.url):
        answer = get(f"{near.url}/pulls/acme?token=hidden", authorization="Bearer hidden", **{cause.HEADER: "user-1"})
        assert answer.text == "done"
        outer, call, inner = all_of(collector, 3)
    assert [outer.name, call.name, inner.name] == [
        "GET /pulls/{name}",
        "GET",
        "GET /v1/clusters/{cluster_id}/tenants/{tenant_id}/rows/{key}",
    ]
    assert [outer.kind, call.kind, inner.kind] == [SERVER, CLIENT, SERVER]
    assert len({outer.trace_id, call.trace_id, inner.trace_id}) == 1
    assert [outer.parent_id, call.parent_id, inner.parent_id] == ["", outer.span_id, call.span_id]
    assert outer.began_ns <= call.began_ns <= inner.began_ns <= inner.ended_ns
    assert call.ended_ns <= outer.ended_ns
    assert {span.attributes["tistream.cause_id"] for span in (outer, call, inner)} == {"user-1"}
    assert [span.attributes["http.response.status_code"] for span in (outer, call, inner)] == [200] * 3
    assert inner.attributes["tistream.tenant"] == "7/acme"
    assert (outer.service, outer.node) == ("tistream-service", "node-7")


def test_nothing_of_paths_queries_tokens_and_errors_is_in_a_span(near: Server, collector: Collector) -> None:
    with traced(collector.url):
        get(f"{near.url}/pulls/acme?token=hidden", authorization="Bearer hidden", cookie="hidden")
        get(f"{near.url}/fails?token=hidden")
        all_of(collector, 6)
    sent = b"".join(collector.bodies)
    for text in (b"hidden", b"top-secret", b"a secret", b"authorization", b"Bearer"):
        assert text not in sent


def test_a_failure_is_seen_in_each_span_on_its_way(near: Server, collector: Collector) -> None:
    with traced(collector.url):
        assert get(f"{near.url}/fails").status_code == 502
        found = all_of(collector, 3)
    assert [(span.name, span.failed) for span in found] == [
        ("GET /fails", "502"),
        ("GET", "PeerFailed"),
        ("GET /fails", "500"),
    ]


def test_log_lines_name_the_trace_they_belong_to(near: Server, collector: Collector) -> None:
    with logged_lines() as stream:
        with traced(collector.url):
            get(f"{near.url}/pulls/acme", **{cause.HEADER: "user-1"})
            log.info("elsewhere")
            outer, *_ = all_of(collector, 3)
        get(f"{near.url}/pulls/acme")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    seen = [(line["message"], line.get("trace_id")) for line in lines if line["logger"] == __name__]
    assert seen == [
        ("asking", outer.trace_id),
        ("working", outer.trace_id),
        ("elsewhere", None),
        ("asking", None),
        ("working", None),
    ]
    assert {line["cause_id"] for line in lines if line.get("trace_id")} == {"user-1"}


def test_probes_and_what_loops_ask_for_have_no_spans(far: Server, near: Server, collector: Collector) -> None:
    with traced(collector.url):
        for path in ("/healthz", "/readyz", "/metrics"):
            assert get(near.url + path).status_code == 200
        HttpClient().request("GET", f"{far.url}/v1/clusters/7/tenants/acme/rows/1")  # as a loop does: in no span
        get(f"{near.url}/pulls/acme")
        all_of(collector, 3)


# -- who may decide --------------------------------------------------------------------------------------------------


def test_a_caller_from_outside_is_linked_to_and_decides_nothing(near: Server, collector: Collector) -> None:
    with traced(collector.url):
        get(f"{near.url}/pulls/acme", traceparent=CALLER)
        outer, *_ = all_of(collector, 3)
    assert outer.trace_id != CALLER.split("-")[1]
    assert outer.parent_id == ""
    assert outer.links == [tuple(CALLER.split("-")[1:3])]


@pytest.mark.parametrize("flags", ["01", "00"])
def test_the_ratio_holds_whatever_callers_from_outside_say(near: Server, collector: Collector, flags: str) -> None:
    with traced(collector.url, traces_ratio=0.0):
        # The sampler keeps the traces with the smallest ids: a caller that could choose would always be kept.
        for trace_id in ("0" * 31 + "1", "f" * 32, CALLER.split("-")[1]):
            assert get(f"{near.url}/pulls/acme", traceparent=f"00-{trace_id}-b7ad6b7169203331-{flags}").text == "done"
    assert collector.spans() == []
    with traced(collector.url, traces_ratio=1.0):
        get(f"{near.url}/pulls/acme", traceparent=CALLER[:-2] + flags)
        all_of(collector, 3)


HOSTILE = [
    "",
    "00",
    CALLER[3:],
    CALLER.upper(),
    CALLER + "-extra",
    CALLER + "\t",
    "ff" + CALLER[2:],
    "01" + CALLER[2:],
    "00-" + "0" * 32 + "-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
    "00-" + "0af7651916cd43dd8448eb211c80319c" * 1000 + "-b7ad6b7169203331-01",
    "00-０af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "'; DROP TABLE spans; --",
    "00-%0d%0a-%00-01",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_traceparent_of_another_form_is_none(text: str) -> None:
    assert Context.parse(text) is None


@pytest.mark.parametrize("text", [one for one in HOSTILE if one.isascii() and "\t" not in one])
def test_a_request_with_one_is_answered_and_linked_to_nothing(near: Server, collector: Collector, text: str) -> None:
    with traced(collector.url):
        assert get(f"{near.url}/pulls/acme", traceparent=text).text == "done"
        outer, *_ = all_of(collector, 3)
    assert outer.links == []
    assert outer.parent_id == ""


def test_two_of_them_are_none(near: Server, collector: Collector) -> None:
    with traced(collector.url):
        twice = [("traceparent", CALLER), ("traceparent", CALLER)]
        assert plain_http.get(f"{near.url}/pulls/acme", headers=twice).text == "done"
        outer, *_ = all_of(collector, 3)
    assert outer.links == []


def test_a_context_is_told_as_it_was_parsed() -> None:
    assert str(Context.parse(CALLER)) == CALLER
    assert str(Context.parse(CALLER[:-2] + "ff")) == CALLER
    unkept = Context.parse(CALLER[:-2] + "02")
    assert unkept is not None
    assert not unkept.sampled


def test_between_services_only_who_bears_the_token_is_in_a_trace(tmp_path: Path, collector: Collector) -> None:
    keys = tmp_path / "service.key"
    keys.write_bytes(base64.b64encode(os.urandom(32)))
    peers = PeerClients(ServiceSettings(service_key_file=keys), SystemClock())
    with traced(collector.url), served(far_app(peers)) as far:
        path = "/v1/clusters/7/tenants/acme/rows/1"
        for token in ("Bearer guessed", "Bearer " + "a.b.c" * 10, ""):
            assert get(far.url + path, authorization=token, traceparent=CALLER).status_code == 401
        with served(near_app(far.url, peers.new_http())) as near:
            assert get(f"{near.url}/pulls/acme").text == "done"
            outer, _, inner = all_of(collector, 3)
    assert inner.trace_id == outer.trace_id != CALLER.split("-")[1]


# -- what a span is ---------------------------------------------------------------------------------------------------


def test_an_endless_answer_does_not_fill_the_collector(collector: Collector) -> None:
    with traced(collector.url):
        with trace.root("long"):
            for _ in range(1_000):
                with trace.child("part"):
                    pass
        eventually(lambda: collector.named("long"))
    assert 100 <= len(collector.named("part")) <= 200


def test_without_a_collector_there_are_no_spans_and_no_library() -> None:
    with trace.root("work") as span, trace.child("part") as part:
        assert (span.context, part.context, trace.mark()) == (None, None, None)
    code = "import tistream_api.app, sys; print([one for one in sys.modules if one.startswith('opentelemetry.sdk')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


# -- the collector -----------------------------------------------------------------------------------------------------


def begins(settings: dict[str, str], code: str = "") -> subprocess.CompletedProcess[str]:
    """A process that begins as a service does."""
    begins = "from tistream.service.http.begin import begin"
    ends = f"{begins}; from tistream_api.settings import ApiSettings; begin(ApiSettings)"
    environ = {f"TISTREAM_API__{name}": value for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-c", code + ends], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )


def test_without_the_extra_a_url_is_refused_with_the_way_out() -> None:
    without = "import sys; sys.modules['opentelemetry.sdk'] = None\n"
    ran = begins({"TRACES_URL": "http://127.0.0.1:1/v1/traces"}, without)
    assert ran.returncode == 2
    assert ran.stderr.startswith("TISTREAM_API__TRACES_URL needs OpenTelemetry: pip install 'tistream[otel]'")
    assert ran.stderr.count("\n") == 1
    assert begins({}, without).returncode == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"TRACES_URL": "127.0.0.1:4318"}, "must begin with http:// or https://"),
        ({"TRACES_URL": "http:///v1/traces"}, "must begin with http:// or https:// and a host"),
        ({"TRACES_URL": "https://me:secret@collector/v1/traces"}, "must hold no secret"),
        ({"TRACES_URL": "https://collector/v1/traces?key=secret"}, "must hold no secret"),
        ({"TRACES_RATIO": "1.5"}, "less than or equal to 1"),
        ({"TRACES_URL": "http://collector/v1/traces", "TRACES_HEADERS_FILE": "/none"}, "begins with https://"),
        ({"TRACES_URL": "https://collector/v1/traces", "TRACES_HEADERS_FILE": "/none"}, "/none"),
        ({"TRACES_URL": "https://collector/v1/traces", "TLS__CA_FILE": "/none"}, "/none"),
    ],
)
def test_wrong_settings_are_told_at_the_start(settings: dict[str, str], says: str) -> None:
    ran = begins(settings)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "secret@" not in ran.stderr


def test_headers_come_from_a_file_that_may_change(tmp_path: Path, collector: Collector) -> None:
    file = tmp_path / "headers"
    file.write_text("x-api-key: first\n\nAuthorization: Bearer one\n")
    with traced(collector.url, traces_headers_file=file):
        with trace.root("one"):
            pass
        eventually(lambda: collector.named("one"))
        file.write_text("x-api-key: second key\n")
        with trace.root("two"):
            pass
        eventually(lambda: collector.named("two"))
    assert (collector.headers[0]["x-api-key"], collector.headers[0]["authorization"]) == ("first", "Bearer one")
    assert collector.headers[-1]["x-api-key"] == "second key"


@pytest.mark.parametrize("text", ["", "no colon here", "a b: c", ": c", "a:", "a: b\x00", "ä: b"])
def test_headers_of_another_form_are_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headers"
    file.write_text("x: y\n" + text if text else "")
    if text:
        with pytest.raises(SettingsError, match=r"headers: line 2") as refused:
            begin_traces(ServiceSettings(traces_url="https://collector/v1/traces", traces_headers_file=file))
        assert text not in str(refused.value)
    else:
        with pytest.raises(SettingsError, match="no header"):
            begin_traces(ServiceSettings(traces_url="https://collector/v1/traces", traces_headers_file=file))


def test_over_https_the_authority_of_the_settings_is_trusted_and_no_other(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    shown = ours.sign("collector")
    context = server_context(TlsSettings(cert_file=shown.cert_file, key_file=shown.key_file))
    with collecting(context) as collector:
        with traced(collector.url, tls=TlsSettings(ca_file=other.file)), trace.root("refused"):
            pass
        with traced(collector.url, tls=TlsSettings(ca_file=ours.file)):
            with trace.root("taken"):
                pass
            eventually(lambda: collector.named("taken"))
        assert collector.named("refused") == []


@pytest.fixture
def never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whatever waits for a collector that hangs would go on after five seconds."""
    monkeypatch.setattr(otel, "SEND_SECONDS", 2 * PATIENCE_S)


def hangs(collector: Collector) -> str:
    collector.hold()
    return collector.url


def is_away(_: Collector) -> str:
    return f"http://127.0.0.1:{free_port()}/v1/traces"


def refuses(collector: Collector) -> str:
    collector.status = 503
    return collector.url


def ask(near: Server) -> None:
    assert get(f"{near.url}/pulls/acme").text == "done"


@pytest.mark.usefixtures("never_given_up")
def test_no_request_waits_for_a_collector_that_hangs(near: Server, collector: Collector) -> None:
    with traced(hangs(collector)):
        for _ in range(2):
            ask(near)
        eventually(lambda: collector.headers)  # it has a batch in hands
        ask(near)
        end_traces()
        assert collector.waiting == len(collector.headers), "it has answered nothing yet"
    assert collector.spans() == []


@pytest.mark.usefixtures("never_given_up")
@pytest.mark.parametrize("trouble", [hangs, is_away, refuses])
def test_more_spans_than_the_queue_holds_are_dropped(
    near: Server, collector: Collector, trouble: Callable[[Collector], str]
) -> None:
    with traced(trouble(collector)):
        for _ in range(3 * QUEUE_SPANS):
            with trace.root("work"):
                pass
        ask(near)
        end_traces()
        assert collector.spans() == []


def test_a_collector_that_comes_back_gets_spans_and_the_log_says_both(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    with caplog.at_level(logging.INFO, "tistream.service.observe.otel"), traced(collector.url):
        for name in ("one", "two"):
            seen = len(collector.headers)
            with trace.root(name):
                pass
            eventually(lambda seen=seen: len(collector.headers) > seen)
        collector.status = 200
        with trace.root("three"):
            pass
        eventually(lambda: collector.named("three"))
    # The sender of an earlier test may still be ending.
    told = [record for record in caplog.records if getattr(record, "collector", None) == collector.url]
    assert [record.message for record in told] == [
        "the collector of traces does not accept spans: they are lost",
        "the collector of traces accepts spans again",
    ]


def test_a_call_that_is_tried_again_is_a_span_each_time(far: Server, collector: Collector) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    with traced(collector.url):
        with pytest.raises(Unavailable), trace.root("work"):
            HttpClient(sleep=lambda _: None).request("GET", f"{gone}/tenants/acme", attempts=3)
        found = all_of(collector, 4)
    assert [(span.name, span.failed) for span in found] == [("work", "Unavailable"), *[("GET", "Unavailable")] * 3]
    assert found[1].attributes["server.address"] == gone.removeprefix("http://")


def test_settings_name_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TISTREAM_SERVICE__TRACES_URL", "https://collector:4318/v1/traces")
    monkeypatch.setenv("TISTREAM_SERVICE__TRACES_RATIO", "0.25")
    found = load_settings(ServiceSettings)
    assert (found.traces_url, found.traces_ratio) == ("https://collector:4318/v1/traces", 0.25)
