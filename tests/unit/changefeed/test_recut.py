"""A feed is cut into other shards while it has rows to send: each event is in its partition once and in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.audit_world import World as MetaWorld
from support.model_kafka import ModelKafka
from support.pull_world import World, golden_world
from tistream.clock import ManualClock
from tistream.consume import open_protocol
from tistream.consume.feed_events import ResolvedEvent
from tistream.model.ids import TenantKey
from tistream.read.cursor import Position, Scope
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget, Scan
from tistream.read.source import TenantSource
from tistream.wire.bulk.changefeeds import FeedWork, NewChangefeed, Skip, WorkerBeat
from tistream.wire.bulk.feed_changes import ChangedFeed
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.dispatch.ownership import Ownership
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.routes.feed_routes import _work, info_of

ACME = TenantKey("7", "acme")
PARTITIONS = 5
Place = tuple[str, int]
Pair = tuple[bytes | None, bytes | None]
URI = f"kafka://broker:9092/changes?protocol=open-protocol&partition-num={PARTITIONS}&max-batch-size=1"
TABLES = {
    "filter": {
        "rules": ["shop.orders", "shop.items"],
        "event-filters": [{"matcher": ["*.*"], "ignore-event": ["all ddl"]}],
    },
    "sink": {
        "dispatchers": [
            {"matcher": ["shop.items"], "topic": "of_{table}", "partition": "index-value"},
            {"matcher": ["*.*"], "partition": "index-value"},
        ]
    },
}


# Two events of types.everything have messages of some 200,000 bytes.
LARGE = {
    **TABLES,
    "filter": {**TABLES["filter"], "rules": ["shop.orders", "types.everything"]},
    "sink": {"dispatchers": [{"matcher": ["*.*"], "partition": "index-value"}]},
}
NAMED = re.compile(r"commit_ts (\d+), key ([0-9a-f]+): its message has")

# A rule that does not fit: no event of shop.items can be sent, so the table stops.
UNFIT = {**TABLES, "sink": {"dispatchers": [
    {"matcher": ["shop.items"], "topic": "of_{table}", "partition": "columns", "columns": ["nope"]},
    {"matcher": ["*.*"], "partition": "index-value"},
]}}  # fmt: skip


def config(shards: int, tables: dict[str, dict[str, Any]] = TABLES) -> dict[str, object]:
    return {**tables, "tistream": {"shards": shards}}


class Pool:
    """The recorded pool, up to a ts."""

    def __init__(self, world: World) -> None:
        self.world, self.ts = world, world.snapshot_ts

    @property
    def source(self) -> TenantSource:
        return self.world.source

    def resolved_ts(self) -> int:
        return self.ts

    def wait_fresh(self) -> None:
        return None

    def check_known(self) -> None:
        return None

    def check_served(self, ts: int) -> None:
        return None

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        return self.ts > ts

    def record_barrier(self, barrier: Barrier) -> None:
        raise AssertionError(barrier)


class Worker:
    """One worker with its holders, each of which makes a step when it is told to, and the meta server's book."""

    def __init__(self, folder: Path) -> None:
        meta = MetaWorld(folder)
        meta.tenant("acme")
        self.book = meta.repository.part(FeedBook)
        self.pool, self.clock = Pool(golden_world("everything")), ManualClock(4_000_000_000_000)
        self.kafka = ModelKafka(self.clock.monotonic_ms, Random(1))
        self.clients = self.kafka.clients(lambda seconds: self.clock.advance(int(seconds * 1000) + 1), lambda: True)
        self.metrics = ChangefeedMetrics(CollectorRegistry())
        self.holders: dict[tuple[int, int], Holder] = {}

    def beat(self) -> None:
        beat = WorkerBeat(node_id="w", instance="1", reports=[one.report() for one in self.holders.values()])
        works = [_work(*held, {}) for held in self.book.beat(beat, {"w"})]
        wanted = {(work.shard.shard, work.epoch): work for work in works}
        for key in self.holders.keys() - wanted.keys():
            self.holders.pop(key).stop()
        for key in sorted(wanted.keys() - self.holders.keys()):
            self.holders[key] = self._holder(wanted[key])

    def _holder(self, work: FeedWork) -> Holder:
        of, feed = work.shard, parsed(work.sink_uri, work.config, work.skips)
        order = Order(
            self.pool.world.tenant,
            of.changefeed_id,
            of.shard,
            Fence(of.generation, work.epoch),
            work.start_ts,
            work.end_ts,
            Revision(work.revision, work.moved),
            work.shards,
            work.known_ts,
            work.cutting,
        )
        return Holder(
            Shard(order, Random(1)),
            lambda: self.pool,
            lambda: KafkaSink(feed.target, order, self.clock, self.clients),
            feed.pipeline(ownership=Ownership(of.shard, work.shards)),
            self.clock,
            Budget(rows=64, first_rows=64),
            2_000,
            self.metrics,
        )

    def step(self, *shards: int) -> None:
        """A step of these shards' holders, or of all."""
        for (shard, _), holder in sorted(self.holders.items()):
            if not shards or shard in shards:
                holder.step()
                assert holder.shard.failure is None, holder.shard.failure
                self.clock.advance(1_500)

    def recut(self, shards: int, tables: dict[str, dict[str, Any]] = TABLES) -> None:
        self.book.pause(ACME, "f")
        self.beat()
        feed, _ = self.book.one(ACME, "f")
        end_ts = str(self.pool.world.end_ts)
        self.book.update(
            ACME, "f", ChangedFeed(revision=feed.revision, sink_uri=URI, end_ts=end_ts, config=config(shards, tables))
        )
        self.book.resume(ACME, "f")


def undisturbed(
    world: World,
    partitions: int = PARTITIONS,
    tables: dict[str, dict[str, Any]] = TABLES,
    topics: Sequence[str] = ("changes", "of_items"),
) -> dict[Place, list[Pair]]:
    pipeline = parsed(URI, tables).pipeline()
    out: dict[Place, list[Pair]] = {(topic, number): [] for topic in topics for number in range(partitions)}
    scan = Scan(
        world.source,
        Scope(world.tenant),
        Position(world.snapshot_ts),
        world.end_ts,
        world.budget,
        numbered=True,
        moving=pipeline.splitting,
    )
    for batch in scan.batches():
        encoded = pipeline.rows(batch.events, lambda _: partitions)
        for one in encoded.framed(encoded.messages).each():
            out[one.topic, one.partition].append((one.key, one.value))
    return out


def commits(wanted: dict[Place, list[Pair]]) -> Sequence[int]:
    return sorted(open_protocol.decode(*one)[0].commit_ts for seen in wanted.values() for one in seen)  # type: ignore[union-attr]


@pytest.mark.parametrize("cuts", [(3, 1, 4), (1, 2, 2)])
def test_events_are_sent_once_and_in_order_by_whatever_shards_a_feed_has(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    worker = Worker(tmp_path)
    world = worker.pool.world
    wanted = undisturbed(world)
    stamps = commits(wanted)
    body = NewChangefeed(
        changefeed_id="f",
        sink_uri=URI,
        start_ts=str(world.snapshot_ts),
        start_given=True,
        end_ts=str(world.end_ts),
        config=config(2),
    )
    worker.book.add(ACME, body)
    for number, shards in enumerate(cuts, 1):
        worker.beat()
        worker.pool.ts = stamps[len(stamps) * number // (len(cuts) + 1)] - number % 2
        worker.step(0)  # the others stay behind
        worker.beat()
        worker.recut(shards)
        for _ in range(6):
            worker.beat()
            worker.step()
        assert worker.book.one(ACME, "f")[0].recut is None
        assert len(worker.holders) == shards
    finish(worker, wanted)


def finish(worker: Worker, wanted: dict[Place, list[Pair]]) -> None:
    """Go on to the end of the pool, and check what each partition has."""
    world = worker.pool.world
    worker.pool.ts = world.end_ts
    for _ in range(4):
        worker.step()
        worker.beat()
    assert worker.book.one(ACME, "f")[0].state == "finished"
    worker.clock.advance(1_000)  # the last transactions' markers are written
    for place, messages in wanted.items():
        resolved, found = 0, []
        for _, record in worker.kafka.committed(*place):
            [event] = open_protocol.decode(record.key, record.value)
            if isinstance(event, ResolvedEvent):
                assert event.ts >= resolved
                resolved = event.ts
            else:
                assert event.commit_ts > resolved, "a row follows a resolved message of its ts"
                found.append((record.key, record.value))
        assert found == messages, place
        assert resolved == world.end_ts


def rows_of(worker: Worker, topic: str) -> int:
    """The number of messages of rows in a topic."""
    worker.clock.advance(1_000)
    found = [one for number in range(PARTITIONS) for _, one in worker.kafka.committed(topic, number)]
    return sum(not isinstance(open_protocol.decode(one.key, one.value)[0], ResolvedEvent) for one in found)


def test_a_stopped_table_postpones_a_cut_and_the_other_tables_go_on(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    world = worker.pool.world
    wanted = undisturbed(world)
    stamps = commits(wanted)
    body = NewChangefeed(
        changefeed_id="f",
        sink_uri=URI,
        start_ts=str(world.snapshot_ts),
        start_given=True,
        end_ts=str(world.end_ts),
        config=config(1, UNFIT),
    )
    worker.book.add(ACME, body)
    seen = []
    for part in (1, 2):
        worker.beat()
        worker.pool.ts = stamps[len(stamps) * part // 3]
        worker.step()
        worker.beat()
        if part == 1:
            worker.recut(3, UNFIT)
        for _ in range(6):
            worker.beat()
            worker.step()
        seen.append((rows_of(worker, "changes"), rows_of(worker, "of_items")))
        assert len(worker.holders) == 1, "the cut waits for the table"
    assert seen[0][0] < seen[1][0], "the other table goes on"
    assert {items for _, items in seen} == {0}
    worker.recut(3)
    worker.pool.ts = world.end_ts
    for _ in range(6):
        worker.beat()
        worker.step()
    finish(worker, wanted)


def test_an_event_that_cannot_be_sent_stops_its_table_in_a_shard_and_all_finish_once_it_is_skipped(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path)
    world = worker.pool.world
    wanted = undisturbed(world, tables=LARGE, topics=["changes"])
    body = NewChangefeed(
        changefeed_id="f",
        sink_uri=f"{URI}&max-message-bytes=150000",
        start_ts=str(world.snapshot_ts),
        start_given=True,
        end_ts=str(world.end_ts),
        config=config(3, LARGE),
    )
    worker.book.add(ACME, body)
    worker.pool.ts = world.end_ts
    named: list[int] = []
    while (feed := worker.book.one(ACME, "f")[0]).state != "finished":
        assert feed.state == "running"
        for one in info_of(*worker.book.one(ACME, "f")).stopped:
            found = NAMED.search(one.reason)
            assert found is not None, one
            if int(found[1]) not in named:
                named.append(int(found[1]))
                skip = Skip(commit_ts=named[-1], table="types.everything", key=found[2], reason="too large")
                worker.book.skip(ACME, "f", skip)
        worker.beat()
        for _, holder in sorted(worker.holders.items()):
            holder.step()
            worker.clock.advance(1_500)
        worker.beat()
    assert len(named) == len(set(named)) == 2
    left_out = [pair for seen in wanted.values() for pair in seen if len(pair[1] or b"") > 150_000]
    assert sorted(commits({("changes", 0): left_out})) == sorted(named)
    finish(worker, {place: [pair for pair in seen if pair not in left_out] for place, seen in wanted.items()})
    letters = [one for number in range(PARTITIONS) for one in worker.kafka.committed("changes-dead-letter", number)]
    assert len(letters) == 2
    assert sum(feed.skipped.values()) == 2
