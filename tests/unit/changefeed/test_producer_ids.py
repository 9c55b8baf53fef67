"""The transactional ids of shards: no two feeds share one, and whoever held a shard before is fenced, whatever its
release."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from support.earlier_kafka_sink import EarlierKafkaSink
from support.model_kafka import ModelKafka
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.read.cursor import Position
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.outgoing import NOTHING, SentMessage
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_changefeed.sinks.kafka.producer_ids import (
    fenced_ids,
    joined_id,
    later_id,
    repair_id,
    shard_id,
    written_id,
)
from tistream_changefeed.sinks.kafka.target import KafkaTarget

ORDER = Order(TenantKey("7", "acme-eu"), "orders", 0, Fence(1, 1), 100)
TWIN = replace(ORDER, tenant=TenantKey("7", "acme"), feed_id="eu-orders")


class Broker:
    """A broker with the topic `changes`, and the holders that write to it."""

    def __init__(self, delivery: str = "exactly-once") -> None:
        self.clock = ManualClock(4_000_000_000_000)
        self.kafka = ModelKafka(self.clock.monotonic_ms, Random(1))
        self.kafka.topics["changes"] = [[]]
        self.target = KafkaTarget(("broker:9092",), "changes", delivery=delivery)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Let the markers of the last transaction be written, so that all readers see it."""
        self.clock.advance(1_000)

    def holder(self, order: Order = ORDER, epoch: int = 1, kind: type[KafkaSink] = KafkaSink) -> Holding:
        clients = self.kafka.clients(lambda seconds: self.clock.advance(int(seconds * 1000) + 1), lambda: True)
        held = replace(order, fence=Fence(order.fence.generation, epoch))
        return Holding(held, kind(self.target, held, self.clock, clients))

    def seen(self) -> list[bytes | None]:
        self.settle()
        return [one.value for _, one in self.kafka.committed("changes", 0)]

    def versions(self) -> list[int]:
        """The versions of the progress records, in order."""
        self.settle()
        return [json.loads(one.value or b"")["version"] for _, one in self.kafka.committed("changes-progress", 0)]


class Holding:
    """A holder of a shard: its machine and its sink. `opened` is what the sink found; the first transaction follows."""

    def __init__(self, order: Order, sink: KafkaSink) -> None:
        self.shard, self.sink = Shard(order, Random(1)), sink

    def opened(self) -> Holding:
        found, ends = self.sink.open()
        self.first = self.shard.opened(found, ends, "log")
        return self

    def begun(self) -> Holding:
        self.sink.write(self.first)
        self.shard.acknowledged(self.first, 0)
        return self

    def send(self, ts: int) -> None:
        transaction = self.shard.send(NOTHING, 0, (SentMessage("changes", 0, None, b"%d" % ts),), Position(ts))
        self.sink.write(transaction)
        self.shard.acknowledged(transaction, 0)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(FeedFailed) as found:
        act()
    return found.value.failure.kind


def test_no_two_feeds_have_one_id() -> None:
    names = ["a", "b", "a-b", "b-c", "a-b-c", "c"]
    orders = [
        replace(ORDER, tenant=TenantKey(cluster, tenant), feed_id=feed)
        for cluster in names for tenant in names for feed in names
    ]  # fmt: skip
    assert joined_id(ORDER) == joined_id(TWIN) == "tistream-7-acme-eu-orders-0"
    assert len({shard_id(one) for one in orders}) == len(orders)
    assert len({repair_id(one.tenant, one.feed_id) for one in orders}) == len(orders)
    assert shard_id(TWIN) == joined_id(TWIN), "without a hyphen in cluster and tenant the id is what it was"
    assert shard_id(ORDER) == "tistream-7.acme-eu.orders.0"


def test_feeds_whose_ids_read_the_same_do_not_fence_each_other() -> None:
    broker = Broker()
    one, twin = broker.holder().opened().begun(), broker.holder(TWIN).opened().begun()
    for ts in (101, 103):
        one.send(ts)
        twin.send(ts + 1)
    again = broker.holder(epoch=2).opened().begun()
    again.send(105)
    twin.send(106)
    assert broker.seen() == [b"101", b"102", b"103", b"104", b"105", b"106"]
    assert broker.kafka.fenced == 0


@pytest.mark.parametrize("order", [ORDER, TWIN])
def test_of_two_holders_only_the_later_one_writes(order: Order) -> None:
    broker = Broker()
    old = broker.holder(order).opened().begun()
    old.send(101)
    new = broker.holder(order, 2).opened().begun()
    broker.settle()
    assert refused(lambda: old.send(102)) == "retry"
    assert refused(broker.holder(order).opened) == "fenced"
    new.send(102)
    assert broker.seen() == [b"101", b"102"]


def test_of_two_holders_that_begin_a_feed_one_begins_it() -> None:
    broker = Broker()
    old, new = broker.holder().opened(), broker.holder(epoch=2).opened()
    assert refused(old.begun) == "retry"
    new.begun().send(101)
    broker.settle()
    assert refused(broker.holder().opened) == "fenced"
    assert broker.seen() == [b"101"]


def test_a_feed_of_an_earlier_release_keeps_its_id() -> None:
    broker = Broker()
    old = broker.holder(kind=EarlierKafkaSink).opened().begun()
    old.send(101)
    new = broker.holder(epoch=2).opened().begun()
    assert refused(lambda: old.send(102)) == "retry"
    new.send(102)
    back = broker.holder(epoch=3, kind=EarlierKafkaSink).opened().begun()  # which a worker of that release takes over
    assert refused(lambda: new.send(103)) == "retry"
    back.send(103)
    assert broker.seen() == [b"101", b"102", b"103"]
    assert set(broker.versions()) == {1}


def test_a_holder_of_an_earlier_release_that_wakes_up_writes_nothing() -> None:
    broker = Broker()
    new = broker.holder(epoch=2).opened()
    old = broker.holder(kind=EarlierKafkaSink).opened()  # it lost the feed, and does not know that yet
    assert refused(new.begun) == "retry", "it fenced the new one"
    new = broker.holder(epoch=2).opened()
    assert refused(old.begun) == "retry"
    new.begun().send(101)
    broker.settle()
    assert refused(old.opened) == "failed"
    assert broker.seen() == [b"101"]


def test_a_worker_of_an_earlier_release_does_not_take_over_a_feed_with_a_dotted_id() -> None:
    broker = Broker()
    new = broker.holder().opened().begun()
    broker.settle()
    assert refused(broker.holder(epoch=2, kind=EarlierKafkaSink).opened) == "failed"
    new.send(101)
    assert broker.seen() == [b"101"]
    assert broker.versions() == [5, 5]


@pytest.mark.parametrize("kind", [KafkaSink, EarlierKafkaSink])
def test_holders_of_a_feed_that_was_removed_are_fenced_by_the_one_that_was_created_anew(kind: type[KafkaSink]) -> None:
    broker = Broker()
    old = broker.holder(kind=kind, epoch=7).opened().begun()
    old.send(101)
    new = broker.holder(replace(ORDER, fence=Fence(2, 1))).opened()
    assert refused(lambda: old.send(102)) == "retry"
    new.begun().send(201)
    assert broker.seen() == [b"101", b"201"]


def test_a_feed_that_becomes_exactly_once_keeps_what_its_records_say_of_the_id() -> None:
    broker = Broker()
    exactly = broker.target
    broker.holder().opened().begun().send(101)
    broker.target = replace(exactly, delivery="at-least-once")
    broker.holder(epoch=2).opened().begun().send(102)
    broker.target = exactly
    broker.holder(epoch=3).opened().begun().send(103)
    assert set(broker.versions()) == {5}
    other = Broker("at-least-once")
    other.holder().opened().begun().send(101)
    other.target = exactly
    other.holder(epoch=2).opened().begun().send(102)
    assert set(other.versions()) == {1}, "holders of an earlier release may be alive, and fence the joined id only"


def test_what_is_fenced_is_what_can_be_written_under() -> None:
    assert fenced_ids(ORDER, None) == (shard_id(ORDER), joined_id(ORDER))
    assert (written_id(ORDER, None), later_id(ORDER, None)) == (joined_id(ORDER), shard_id(ORDER))
    assert fenced_ids(TWIN, None) == (joined_id(TWIN),)
