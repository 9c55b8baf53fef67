"""From a file that is found to the manifest that names it: one trace, and from each file a way to its tick.

Meta server, dispatcher and sorter over HTTP; shards run in the tick's thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.collector import Collector, Sent, collecting, traced
from support.http_world import World, running
from support.tiny_tenant import TinyTenant, watermark, whole
from support.waiting import PATIENCE_S, eventually
from tistream.service.observe import otel
from tistream.storage import layout

TINY = TinyTenant()
ABOVE = ("POST /v1/files", "POST", "dispatch")  # of a file and of its tick
PARTS = ("file routed", "file in manifest", "tick", "plan", "spark job", "shard", "read", "match", "write", "put",
         "commit", "put manifest")  # fmt: skip


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def begin(world: World) -> None:
    world.objects.put(layout.schema_snap(TINY.tenant), b'{"version":1,"snapshot_ts":100,"databases":[]}')
    world.client.create_tenant(TINY.tenant.cluster_id, TINY.tenant.tenant_id)
    eventually(lambda: [task.phase for task in world.client.tasks().tasks] == ["running"])


def push(world: World, store: int, number: int) -> int:
    """The number-th file of a store, with a row; its ts."""
    ts, prev_ts = 1_000 + 10 * number, 1_000 + 10 * (number - 1) if number else 0
    rows = [whole(b"k%d%03d" % (store, number), ts + 1, ts + 2, 5 + number)]
    marks = {"base_ts": 100} if not number else {}
    file = TINY.file(store, ts, prev_ts, rows, watermark(6 if not number else 5 + number, 5 + number, ts + 5, **marks))
    world.objects.put(file.key, file.data)
    world.notify(TINY.tenant, store, ts)
    return ts


def of_file(collector: Collector, name: str, ts: int) -> list[Sent]:
    return collector.spans(lambda span: span.name == name and span.attributes.get("tistream.file_ts") == str(ts))


def in_a_manifest(collector: Collector, ts: int) -> Sent:
    eventually(lambda: of_file(collector, "file in manifest", ts))
    return of_file(collector, "file in manifest", ts)[0]


def test_a_file_is_followed_from_where_it_was_found_to_its_manifest(tmp_path: Path, collector: Collector) -> None:
    with running(tmp_path) as world:
        begin(world)
        with traced(collector.url):
            ts = push(world, 1, 0)
            named = in_a_manifest(collector, ts)
            # A span comes when it has ended, and who asked another ends after that one
            eventually(lambda: {span.name for span in collector.trace(named.trace_id)} >= {*PARTS, *ABOVE})
        found = collector.trace(named.trace_id)
        (dispatch,) = [span for span in found if span.parent_id == ""]
        assert dispatch.name == "dispatch"
        assert dispatch.attributes["tistream.tenant"] == str(TINY.tenant)
        by_id = {span.span_id: span for span in found}

        def way(span: Sent) -> list[str]:
            return [] if span.parent_id == "" else [by_id[span.parent_id].name, *way(by_id[span.parent_id])]

        above = list(ABOVE)
        ways = {span.name: way(span) for span in found}
        assert ways["file routed"] == ["dispatch"]
        assert ways["file in manifest"] == above
        assert ways["plan"] == ways["spark job"] == ways["commit"] == ["tick", *above]
        assert ways["put manifest"] == ["commit", "tick", *above]
        for stage in ("read", "match", "write", "put"):
            assert ways[stage] == ["shard", "spark job", "tick", *above]
        (tick,) = [span for span in found if span.name == "tick"]
        assert named.links == [(tick.trace_id, tick.span_id)]
        assert named.attributes["tistream.manifest"] == tick.attributes["tistream.manifest"]
        for span in found:
            assert span.ended_ns >= span.began_ns > 0
            assert span.failed is None
        assert dispatch.began_ns <= named.began_ns <= named.ended_ns
        assert dispatch.began_ns <= tick.began_ns <= named.ended_ns


def test_each_of_several_files_leads_to_a_tick(tmp_path: Path, collector: Collector) -> None:
    with running(tmp_path) as world:
        begin(world)
        with traced(collector.url):
            stamps = [push(world, 1, number) for number in range(6)]
            named = [in_a_manifest(collector, ts) for ts in stamps]
            eventually(lambda: {one.links[0][1] for one in named} <= {tick.span_id for tick in collector.named("tick")})


def test_what_is_not_kept_where_it_begins_is_not_kept_further_on(tmp_path: Path, collector: Collector) -> None:
    with running(tmp_path) as world:
        begin(world)
        with traced(collector.url, traces_ratio=0.0):
            push(world, 1, 0)
            eventually(lambda: world.progress_ts(TINY.tenant) >= 1_005)
    assert collector.spans() == []


def test_nothing_waits_for_a_collector_that_hangs(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "SEND_SECONDS", 2 * PATIENCE_S)  # it is never given up
    with running(tmp_path) as world:
        begin(world)
        collector.hold()
        with traced(collector.url):
            push(world, 1, 0)
            eventually(lambda: collector.headers)
            push(world, 1, 1)
            eventually(lambda: world.progress_ts(TINY.tenant) >= 1_015)
            assert collector.waiting == len(collector.headers), "it has answered nothing yet"
        assert collector.spans() == []


def test_a_tick_that_fails_says_so_and_the_next_one_is_another(tmp_path: Path, collector: Collector) -> None:
    with running(tmp_path) as world:
        begin(world)
        (task,) = world.sorter.node.tasks()
        runner = world.sorter.node._jobs._runner
        whole_run, failures = runner.run, iter([True])

        def run(shards: Any, *, beside: bool = False) -> Any:
            if next(failures, False):
                raise RuntimeError("no executor")
            return whole_run(shards, beside=beside)

        runner.run = run  # type: ignore[method-assign]
        with traced(collector.url):
            named = in_a_manifest(collector, push(world, 1, 0))
            eventually(lambda: len(collector.named("tick")) == 2)
        first, second = collector.named("tick")
        assert (first.failed, second.failed) == ("tick", None)
        assert {span.failed for span in collector.named("spark job")} == {"RuntimeError", None}
        assert named.links == [(second.trace_id, second.span_id)]
        assert task.trouble is None
