"""Replicas of a log that is restated and collected under them: up to date, behind, and in the middle of reading."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import orjson
import pytest

from support.committed_pool import CommittedTask
from support.log_world import SNAPSHOT_TS, TENANT, Node, answers, pool, truncate
from support.schema_records import name, table_info
from tistream.errors import Gone
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.schema_client import SchemaClient, SchemaReplica
from tistream.wire.schema import LogPage
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.record_log import BLOCK_LINES

OFTEN = LogKeepingRules(base_objects=3, grace_ms=0)


class World:
    """A registry with two pages of tables, and replicas that ask it over HTTP."""

    def __init__(self) -> None:
        self.objects, self.clock = MemoryObjectStore(), [0]
        self.task: CommittedTask = pool(self.objects)
        info = {"id": 1, "db_name": name("d"), "state": 5}
        tables = [table_info(99, "t"), *(table_info(10_000 + at, f"o{at}") for at in range(2 * BLOCK_LINES))]
        snap = {"version": 1, "snapshot_ts": SNAPSHOT_TS, "databases": [{"db_info": info, "tables": tables}]}
        self.objects.put(layout.schema_snap(TENANT), orjson.dumps(snap))
        self.node = Node(self.objects, self.clock, OFTEN)
        self.http = HttpClient(transport=httpx.MockTransport(self._answer))

    def replica(self) -> SchemaReplica:
        return SchemaReplica(SchemaClient(self.http, lambda: "http://schema"), TENANT)

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            ts = self.task.flushed_ts + 1
            self.task.retained_ts = max(0, min(ts - 2, self.node.durable.high_ts))
            self.task.flush(ts, truncate(ts))
            self.node.step()
        assert self.node.schema.holds == []

    def restart(self) -> None:
        self.node = Node(self.objects, self.clock, OFTEN, "restarted")
        self.node.step()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        asked = {name: int(value) for name, value in request.url.params.items()}
        read = self.node.schema.read_log(
            asked["after"],
            asked["known_resolved_ts"],
            0,
            known_base_ts=asked["known_base_ts"],
            stopping=lambda: True,
            now_ms=lambda: 0,
        )
        page = LogPage(
            log_id=read.log_id,
            snapshot_ts=read.snapshot_ts,
            base_ts=read.base_ts,
            resolved_ts=read.resolved_ts,
            begins=read.begins,
            next_after=read.next_after,
            more=read.more,
            records=[orjson.loads(line) for line in read.lines],
        )
        return httpx.Response(200, content=page.model_dump_json())

    def check(self, replica: SchemaReplica) -> None:
        assert replica.history is not None
        with self.node.schema.reading() as history:
            low_ts = history.base_ts
            assert replica.history.base_ts == low_ts
            assert replica.resolved_ts == history.resolved_ts
            assert answers(replica.history, low_ts) == answers(history, low_ts)


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    one.node.step()
    yield one
    one.http.close()


def test_who_is_up_to_date_goes_on_and_forgets_too(world: World) -> None:
    replica = world.replica()
    before = replica.refresh()
    bases = set()
    for _ in range(8):
        world.grow(1)
        assert replica.fetch().begins is False
        assert replica.refresh() is before
        bases.add(before.base_ts)
        world.check(replica)
    assert len(bases) > 2
    with pytest.raises(Gone):
        before.tables(SNAPSHOT_TS, "d")
    world.restart()
    world.grow(1)
    assert replica.refresh() is before  # the numbers are those of the log, whoever serves it
    world.check(replica)


@pytest.mark.parametrize("again", [False, True], ids=["same registry", "restarted"])
def test_who_is_behind_reads_anew_and_tells_meanwhile_what_it_knows(world: World, again: bool) -> None:
    behind = world.replica()
    world.grow(1)
    before = behind.refresh()
    told = behind.resolved_ts
    known = answers(before, SNAPSHOT_TS)
    world.grow(9)
    if again:
        world.restart()
    page = behind.fetch()
    assert page.begins
    assert page.more
    assert not behind.apply(page)
    assert behind.history is before
    assert behind.resolved_ts == told
    assert answers(before, SNAPSHOT_TS) == known
    assert behind.refresh() is not before
    world.check(behind)
    fresh = world.replica()
    fresh.refresh()
    world.check(fresh)


def test_a_base_under_a_replica_that_reads_begins_its_reading_anew(world: World) -> None:
    world.grow(8)
    replica = world.replica()
    first = replica.fetch()
    assert first.begins
    assert not replica.apply(first)
    world.grow(8)
    second = replica.fetch()
    assert second.begins
    assert second.base_ts > first.base_ts
    replica.apply(second)
    third = replica.fetch()
    assert not third.begins
    replica.apply(third)
    replica.refresh()
    world.check(replica)


def test_a_registry_that_lags_behind_is_no_other_log(world: World) -> None:
    world.grow(8)
    replica = world.replica()
    history = replica.refresh()
    lagging = Node(world.objects, world.clock, OFTEN, "lagging")
    assert lagging.follower.load()
    for _ in range(5):
        world.grow(1)
        assert replica.refresh() is history
    resolved_ts = replica.resolved_ts
    assert resolved_ts > lagging.resolved_ts
    world.node, newer = lagging, world.node
    assert replica.refresh() is history
    assert replica.resolved_ts == resolved_ts
    world.node = newer
    world.grow(1)
    assert replica.refresh() is history
    world.check(replica)
