"""A topic of a feed grows: where all shards stand, its partitions are told of the new number, and readers follow."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from test_recut import ACME, PARTITIONS, TABLES, URI, Worker, commits, undisturbed

from support.model_kafka import ModelKafka
from tistream.consume import open_protocol
from tistream.consume.consumer import FeedConsumer
from tistream.consume.feed_events import AdminEvent, ResolvedEvent, RowEvent
from tistream.consume.kafka_topics import TopicMessage
from tistream.consume.reorder import Partition, ReadProgress, Step, Transaction
from tistream.errors import InvalidRequest
from tistream.wire.bulk.changefeeds import NewChangefeed
from tistream.wire.bulk.feed_changes import ChangedFeed
from tistream_changefeed.sinks.kafka.feed_settings import parsed

GROWN = PARTITIONS + 3
WIDER = URI.replace(f"partition-num={PARTITIONS}", f"partition-num={GROWN}")
SHARDS = 2
CONFIG = {**TABLES, "tistream": {"shards": SHARDS, "admin-events": True}}
TOPICS = ("changes", "of_items")


class Reader:
    """Reads the topics of a broker as a consumer does, a message of each partition at a time (consumer.Topics), and
    keeps what it is given (consumer.Target)."""

    def __init__(self, kafka: ModelKafka) -> None:
        self.kafka = kafka
        self.offsets: dict[Partition, int] = {}
        self.rows: list[RowEvent] = []
        self.ts: list[int] = []

    def partitions(self) -> tuple[Partition, ...]:
        return tuple((topic, number) for topic in TOPICS for number in range(len(self.kafka.topics[topic])))

    def read_from(self, offsets: dict[Partition, int]) -> None:
        self.offsets = dict(offsets)

    def pause(self, partitions: object) -> None:
        return None

    def resume(self, partitions: object) -> None:
        return None

    def poll(self, timeout_s: float) -> list[TopicMessage]:
        out = []
        for place, offset in self.offsets.items():
            found = [(at, one) for at, one in self.kafka.committed(*place) if at >= offset]
            for at, one in found[:1]:
                out.append(TopicMessage(place, at, one.key, one.value))
                self.offsets[place] = at + 1
        return out

    def progress(self) -> ReadProgress | None:
        return None

    def write(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Transaction):
                self.rows += step.rows
                self.ts.append(step.commit_ts)


@dataclass(frozen=True)
class Ended:
    """A feed at its end, and a reader that began before its topics had grown."""

    worker: Worker
    reader: Reader
    consumer: FeedConsumer


def grow(worker: Worker) -> None:
    """What an operator does."""
    for topic in TOPICS:
        worker.kafka.topics[topic] += [[] for _ in range(GROWN - PARTITIONS)]
    worker.book.pause(ACME, "f")
    worker.beat()
    feed, _ = worker.book.one(ACME, "f")
    end_ts = str(worker.pool.world.end_ts)
    worker.book.update(ACME, "f", ChangedFeed(revision=feed.revision, sink_uri=WIDER, end_ts=end_ts, config=CONFIG))
    worker.book.resume(ACME, "f")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A feed whose topics have grown while it had rows to send, at its end."""
    worker = Worker(tmp_path_factory.mktemp("meta"))
    world = worker.pool.world
    body = NewChangefeed(
        changefeed_id="f",
        sink_uri=URI,
        start_ts=str(world.snapshot_ts),
        start_given=True,
        end_ts=str(world.end_ts),
        config=CONFIG,
    )
    worker.book.add(ACME, body)
    stamps = commits(undisturbed(world))
    worker.beat()
    worker.pool.ts = stamps[len(stamps) // 2]
    worker.step(0)  # the other stays behind
    worker.beat()
    reader = Reader(worker.kafka)
    consumer = FeedConsumer(reader, open_protocol.decode, reader)
    grow(worker)
    for _ in range(6):
        worker.beat()
        worker.step()
    worker.pool.ts = world.end_ts
    for _ in range(4):
        worker.step()
        worker.beat()
    assert worker.book.one(ACME, "f")[0].state == "finished"
    worker.clock.advance(1_000)  # the last transactions' markers are written
    return Ended(worker, reader, consumer)


def test_rows_above_the_announced_ts_alone_go_to_the_new_number_of_partitions(ended: Ended) -> None:
    worker = ended.worker
    moved = worker.book.one(ACME, "f")[0].moved
    assert moved is not None
    world = worker.pool.world
    before, after = undisturbed(world), undisturbed(world, GROWN)
    for place, messages in after.items():
        resolved, told, found = 0, 0, []
        for _, record in worker.kafka.committed(*place):
            [event] = open_protocol.decode(record.key, record.value)
            if isinstance(event, ResolvedEvent):
                assert event.ts >= resolved
                resolved = event.ts
            elif isinstance(event, AdminEvent):
                assert (event.ts, event.partitions, resolved) == (moved.ts, GROWN, moved.ts)
                told += 1
            else:
                assert event.commit_ts > resolved
                assert (event.commit_ts > moved.ts) == (told == 1), "the number stands between the two"
                found.append((record.key, record.value))
        assert told == 1, place

        def ts(message: tuple[bytes | None, bytes | None]) -> int:
            [event] = open_protocol.decode(*message)
            assert isinstance(event, RowEvent)
            return event.commit_ts

        low = [one for one in before.get(place, []) if ts(one) <= moved.ts]
        assert found == low + [one for one in messages if ts(one) > moved.ts], place
        assert resolved == world.end_ts


def test_a_reader_follows_to_the_new_partitions_without_a_gap(ended: Ended) -> None:
    reader = ended.reader
    while ended.consumer.step():
        pass
    wanted = undisturbed(ended.worker.pool.world)
    assert len(reader.rows) == sum(map(len, wanted.values()))
    assert reader.ts == sorted(set(commits(wanted))), "each transaction once and whole"
    assert {number for _, number in reader.offsets} == set(range(GROWN))


def test_protocols_without_such_a_message_refuse_the_setting() -> None:
    with pytest.raises(InvalidRequest, match="admin-events is not supported with canal-json"):
        parsed("kafka://h:1/t?protocol=canal-json", {"tistream": {"admin-events": True}})
