"""Traces of the whole platform, as a collector gets them: why a change was where it was, when."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support import golden, plain_http
from support.collector import Collector, Sent, collecting
from support.golden import GoldenSet
from support.platform import SERVICES, Platform
from support.waiting import awaited, eventually

OUTSIDE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Platform]:
    environ = {f"TISTREAM_{service.upper()}__TRACES_URL": collector.url for service in SERVICES}
    platform = Platform(tmp_path_factory.mktemp("traces"), environ=environ)
    try:
        yield platform.start()
        if platform.alive():
            platform.stop()
        assert not platform.unexpected(), platform.unexpected()
    except BaseException:
        print(platform.report())
        raise
    finally:
        platform.close()


@pytest.fixture(scope="module")
def served(up: Platform) -> GoldenSet:
    """All that is pushed of it can be pulled."""
    loaded = golden.load("large")
    up.create_for(loaded)
    golden.push(loaded.deliveries, up.objects)
    up.consumer(loaded.tenant).wait_for(loaded.end_ts)
    return loaded


def logged(up: Platform) -> list[dict[str, Any]]:
    """Lines of the services' logs."""
    lines = up.log_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"ts"') and line.endswith("}")]


def by_service(spans: list[Sent]) -> set[str]:
    return {span.service.removeprefix("tistream-") for span in spans}


def test_one_file_is_followed_through_dispatcher_sorter_and_spark(served: GoldenSet, collector: Collector) -> None:
    def followed() -> list[Sent]:
        """Of a file that was the first of its tick."""
        wanted = {"dispatch", "POST /v1/files", "tick", "spark job", "shard", "commit", "file in manifest"}
        wanted |= {"read", "match", "write", "put", "put manifest", "file routed"}
        traces = [collector.trace(span.trace_id) for span in collector.named("tick")]
        return next((trace for trace in traces if wanted <= {span.name for span in trace}), [])

    trace = awaited(followed)
    assert by_service(trace) == {"dispatcher", "sorter"}
    assert [span.name for span in trace if not span.parent_id] == ["dispatch"]
    times = {span.name: span for span in trace}
    assert times["dispatch"].began_ns <= times["tick"].began_ns <= times["spark job"].began_ns
    assert times["spark job"].ended_ns <= times["commit"].ended_ns
    # Spark's workers have told the truth: what they did lies within the job.
    shard, job = times["shard"], times["spark job"]
    slack_ns = 100_000_000
    assert job.began_ns - slack_ns <= shard.began_ns <= shard.ended_ns <= job.ended_ns + slack_ns


def test_a_pull_is_a_trace_of_its_own_whoever_asks(up: Platform, served: GoldenSet, collector: Collector) -> None:
    consumer = up.consumer(served.tenant)
    query = {"start_ts": str(served.snapshot_ts), "limit": "100"}
    answer = consumer.client.get(f"{consumer.base}/changes", params=query, headers={"traceparent": OUTSIDE})
    assert answer.status_code == 200
    assert "traceparent" not in answer.headers
    route = "GET /v1/clusters/{cluster_id}/tenants/{tenant_id}/changes"

    def linked() -> list[Sent]:
        """Of this call: one that was told to come again is a trace too."""
        spans = [span for span in collector.named(route) if span.links == [tuple(OUTSIDE.split("-")[1:3])]]
        return [span for span in spans if span.attributes["tistream.cause_id"] == answer.headers["tistream-cause"]]

    (pull,) = awaited(linked)
    assert pull.attributes["tistream.events"] == len(answer.content.splitlines()) - 1 > 0
    assert pull.attributes["tistream.bytes"] == answer.num_bytes_downloaded > 0
    assert pull.attributes["tistream.tenant"] == str(served.tenant)
    eventually(lambda: "begin pull" in {span.name for span in collector.trace(pull.trace_id)})
    assert collector.trace(OUTSIDE.split("-")[1]) == []


def test_what_the_api_asks_of_the_meta_server_is_in_the_same_trace(
    up: Platform, served: GoldenSet, collector: Collector
) -> None:
    url, causes = f"{up.url}/v1/clusters/{served.tenant.cluster_id}/tenants", itertools.count()

    def answered() -> str:
        """The cause of a call that was answered, each of which is a trace."""
        cause = f"asked-by-a-test-{next(causes)}"
        status = plain_http.get(url, headers={"tistream-cause": cause}).status_code
        assert status in (200, 503)
        return cause if status == 200 else ""

    cause = awaited(answered)

    def spans() -> list[Sent]:
        return collector.spans(lambda span: span.attributes.get("tistream.cause_id") == cause)

    eventually(lambda: by_service(spans()) == {"api", "meta"})
    assert len({span.trace_id for span in spans()}) == 1


def test_log_lines_name_their_trace_and_no_service_says_that_spans_are_lost(
    up: Platform, served: GoldenSet, collector: Collector
) -> None:
    def named() -> set[str]:
        return {line["trace_id"] for line in logged(up) if "trace_id" in line}

    eventually(lambda: named() & {span.trace_id for span in collector.spans()})
    assert [line for line in logged(up) if line["logger"] == "tistream.service.observe.otel"] == []
