"""The Kafka sink on a real broker: messages and progress appear together, and only the newest holder writes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.kafka import committed, partitions_of
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.read.cursor import Position
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.outgoing import Outgoing, SentMessage
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.sinks.kafka import target as settings
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics
from tistream_cli.platform.local_kafka import LocalKafka

CLOCK = SystemClock()
ORDER = Order(TenantKey("7", "acme"), "orders", 0, Fence(1, 1), 100)


def target_of(broker: LocalKafka, topic: str, **options: object) -> KafkaTarget:
    return replace(KafkaTarget((broker.address,), topic, partition_num=2), **options)


def rows(topic: str, *messages: tuple[int, int, bytes]) -> Outgoing:
    """Messages of (commit_ts, partition, value)."""
    values = pa.array([value for *_, value in messages], pa.large_binary())
    numbers = [np.array([one[at] for one in messages], np.int64) for at in (0, 1)]
    return Outgoing((topic,), np.zeros(len(messages), np.int64), numbers[1], None, values, numbers[0])


class Holding:
    """A holder of a shard: the machine and the sink."""

    def __init__(self, target: KafkaTarget, order: Order = ORDER) -> None:
        self.topic = target.topic
        self.shard, self.sink = Shard(order, Random(1)), KafkaSink(target, order, CLOCK)

    def open(self) -> Holding:
        found, ends = self.sink.open()
        opening = self.shard.opened(found, ends, self.sink.where)
        self.sink.write(opening)
        self.shard.acknowledged(opening, CLOCK.monotonic_ms())
        return self

    def send(self, *messages: tuple[int, int, bytes], resolved: bool = False) -> None:
        until = Position(messages[-1][0])
        marks = tuple(SentMessage(self.topic, number, None, b"R") for number in range(2)) if resolved else ()
        sent = rows(self.topic, *messages)
        if resolved:
            transaction = self.shard.resolve(sent, len(messages), marks, until.commit_ts, until)
        else:
            transaction = self.shard.send(sent, len(messages), marks, until)
        self.sink.write(transaction)
        self.shard.acknowledged(transaction, CLOCK.monotonic_ms())


def values(broker: LocalKafka, topic: str) -> dict[int, list[bytes | None]]:
    return {number: [value for *_, value in seen] for number, seen in committed(broker.address, topic).items()}


def test_topics_are_created_and_a_new_holder_goes_on_where_the_last_one_was(broker: LocalKafka) -> None:
    target = target_of(broker, "goes-on")
    first = Holding(target).open()
    first.send((101, 0, b"a"), (102, 1, b"b"))
    first.send((103, 0, b"c"), resolved=True)
    assert partitions_of(broker.address, "goes-on") == [0, 1]
    assert partitions_of(broker.address, "goes-on-progress") == [0]
    second = Holding(target, replace(ORDER, fence=Fence(1, 2))).open()
    acked = second.shard.acked
    assert acked is not None
    assert (acked.at, acked.resolved_ts, acked.rows) == (Position(103), 103, 3)
    second.send((104, 1, b"d"))
    assert values(broker, "goes-on") == {0: [b"a", b"c", b"R"], 1: [b"b", b"R", b"d"]}


def test_a_topic_that_was_deleted_and_created_again_stops_the_feed(broker: LocalKafka) -> None:
    target = target_of(broker, "recreated")
    Holding(target).open().send((101, 0, b"a"), (102, 1, b"b"))
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics(["recreated"])["recreated"].result(PATIENCE_S)
    eventually(lambda: "recreated" not in admin.list_topics(timeout=PATIENCE_S).topics)
    admin.create_topics([NewTopic("recreated", 2, 1)])["recreated"].result(PATIENCE_S)
    other = Producer({"bootstrap.servers": broker.address})
    for number in (0, 1):
        other.produce("recreated", b"of others", None, number)
    assert other.flush(PATIENCE_S) == 0
    with pytest.raises(FeedFailed, match="the topic was deleted or has lost messages") as refused:
        Holding(target, replace(ORDER, fence=Fence(1, 2))).open()
    assert refused.value.failure.kind == "failed"


def test_the_transaction_of_a_holder_that_was_replaced_is_never_seen(broker: LocalKafka) -> None:
    target = target_of(broker, "replaced")
    old = Holding(target).open()
    old.send((101, 0, b"a"))
    producer = old.sink._producer
    assert producer is not None
    producer.begin_transaction()  # it stops within a transaction whose messages have arrived
    producer.produce("replaced", b"lost", None, 0)
    producer.flush(PATIENCE_S)
    new = Holding(target, replace(ORDER, fence=Fence(1, 2))).open()
    new.send((102, 0, b"b"))
    producer.produce("replaced", b"late", None, 0)  # and wakes up
    with pytest.raises(KafkaException):
        old.sink._commit(producer)
    with pytest.raises(FeedFailed) as refused:  # it opens again, and learns who owns the shard
        Holding(target).open()
    assert refused.value.failure.kind == "fenced"
    new.send((103, 0, b"c"))  # which was not disturbed
    assert values(broker, "replaced")[0] == [b"a", b"b", b"c"]


def test_feeds_whose_ids_read_the_same_write_side_by_side(broker: LocalKafka) -> None:
    target = target_of(broker, "side-by-side")
    order = replace(ORDER, tenant=TenantKey("7", "acme-eu"))
    one = Holding(target, order).open()
    twin = Holding(target, replace(ORDER, feed_id="eu-orders")).open()
    for ts in (101, 103):
        one.send((ts, 0, b"%d" % ts))
        twin.send((ts + 1, 0, b"%d" % (ts + 1)))
    new = Holding(target, replace(order, fence=Fence(1, 2))).open()
    with pytest.raises(FeedFailed, match="another producer has the feed's transactional id"):
        one.send((105, 0, b"late"))
    new.send((105, 0, b"105"))
    twin.send((106, 0, b"106"))
    assert values(broker, "side-by-side")[0] == [b"101", b"102", b"103", b"104", b"105", b"106"]


def test_of_two_holders_with_one_epoch_the_broker_takes_the_messages_of_the_later_one(broker: LocalKafka) -> None:
    """As after a restore of the meta database, which then gives an epoch twice."""
    target = target_of(broker, "one-epoch")
    one = Holding(target).open()
    one.send((101, 0, b"a"))
    other = Holding(target).open()
    with pytest.raises(FeedFailed, match="another producer has the feed's transactional id"):
        one.send((102, 0, b"b"))
    other.send((102, 0, b"b"))
    assert values(broker, "one-epoch")[0] == [b"a", b"b"]


def test_the_open_transaction_of_a_killed_holder_is_aborted_and_not_waited_for(
    broker: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(broker, "killed")
    # The broker itself would end the transaction after ten minutes, and a reader that waits gives up after two
    monkeypatch.setattr(settings, "TRANSACTION_MS", 600_000)
    old = Holding(target).open()
    old.send((101, 0, b"a"))
    producer = old.sink._producer
    assert producer is not None
    producer.begin_transaction()
    producer.produce(target.progress_topic, b"{}", b"7/acme/orders/0", 0)
    producer.flush(PATIENCE_S)
    new = Holding(target, replace(ORDER, fence=Fence(1, 2))).open()
    assert new.shard.at == Position(101)


def test_a_record_behind_the_open_transaction_of_another_feed_is_read(broker: LocalKafka) -> None:
    target = target_of(broker, "shared")
    mine = Holding(target).open()
    lasts = {"transactional.id": "another-feed", "transaction.timeout.ms": 600_000}
    other = Producer({"bootstrap.servers": broker.address, **lasts})
    other.init_transactions(PATIENCE_S)
    other.begin_transaction()
    other.produce(target.progress_topic, b"{}", b"7/acme/other/0", 0)
    other.flush(PATIENCE_S)
    mine.send((101, 0, b"a"))
    mine.sink.close()
    waited = []

    class ClockThatEndsIt(SystemClock):
        """Ends the other feed's transaction at the third look, which only one who waits takes."""

        def monotonic_ms(self) -> int:
            waited.append(1)
            if len(waited) == 3:
                other.abort_transaction(PATIENCE_S)
            return super().monotonic_ms()

    again = Holding(target, replace(ORDER, fence=Fence(1, 2)))
    again.sink._clock = ClockThatEndsIt()
    again.open()
    acked = again.shard.acked
    assert acked is not None
    assert acked.at == Position(101)
    assert len(waited) >= 3


def test_a_topic_that_was_deleted_stops_the_feed(broker: LocalKafka) -> None:
    target = target_of(broker, "deleted")
    Holding(target).open().send((101, 0, b"a"))
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics(["deleted"])["deleted"].result(PATIENCE_S)
    eventually(lambda: "deleted" not in admin.list_topics(timeout=PATIENCE_S).topics)
    with pytest.raises(FeedFailed, match="1 messages were sent to the partition, and it ends at offset 0") as found:
        Holding(target, replace(ORDER, fence=Fence(1, 2))).open()
    assert found.value.failure.kind == "failed"


def test_a_feed_that_is_created_anew_does_not_go_on_from_the_old_one(broker: LocalKafka) -> None:
    target = target_of(broker, "anew")
    Holding(target, replace(ORDER, fence=Fence(1, 9))).open().send((150, 0, b"a"))
    new = Holding(target, replace(ORDER, fence=Fence(2, 1), start_ts=120)).open()
    assert new.shard.at == Position(120)


def test_too_few_partitions_and_a_missing_topic_are_refused(broker: LocalKafka) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("small", 1, 1)])["small"].result(PATIENCE_S)
    with pytest.raises(FeedFailed, match="the topic has 1 partitions, fewer than partition-num=2: add"):
        Topics(target_of(broker, "small"), "test").planned(["small"])
    with pytest.raises(FeedFailed, match="auto-create-topic is false: create it"):
        Topics(target_of(broker, "absent", auto_create=False), "test").planned(["absent"])
    assert Topics(target_of(broker, "absent"), "test").planned(["absent"]) == {"absent": 2}


def test_a_message_that_is_too_large_is_refused_before_anything_is_sent(broker: LocalKafka) -> None:
    target = target_of(broker, "large", max_message_bytes=2_000)
    one = Holding(target).open()
    with pytest.raises(FeedFailed, match="a message of 5000 bytes at commit_ts 102 is larger than") as found:
        one.send((101, 0, b"a"), (102, 1, b"x" * 5_000))
    assert found.value.failure.kind == "failed"
    assert found.value.failure.object == "large-1"
    assert values(broker, "large") == {0: [], 1: []}


def test_a_topic_of_small_messages_takes_many_of_them_in_one_transaction(broker: LocalKafka) -> None:
    """A broker measures a batch by the limit of a message."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("narrow", 2, 1, config={"max.message.bytes": "700"})])["narrow"].result(PATIENCE_S)
    one = Holding(target_of(broker, "narrow", max_message_bytes=1_000)).open()
    sent = [(101 + at, at % 2, b"%04d" % at * 50) for at in range(200)]
    one.send(*sent)
    assert values(broker, "narrow") == {n: [value for *_, at, value in sent if at == n] for n in (0, 1)}


def test_at_least_once_writes_the_progress_behind_the_messages(broker: LocalKafka) -> None:
    target = target_of(broker, "least", delivery="at-least-once")
    Holding(target).open().send((101, 0, b"a"), (102, 1, b"b"), resolved=True)
    again = Holding(target, replace(ORDER, fence=Fence(1, 2))).open()
    assert again.shard.at == Position(102)
    assert values(broker, "least") == {0: [b"a", b"R"], 1: [b"b", b"R"]}


def test_a_broker_that_does_not_answer_is_tried_again(broker: LocalKafka) -> None:
    nowhere = replace(target_of(broker, "nowhere"), brokers=("127.0.0.1:1",))
    with pytest.raises(FeedFailed, match="no broker answers") as found:
        Topics(nowhere, "test").planned(["t"])
    assert found.value.failure.kind == "retry"
