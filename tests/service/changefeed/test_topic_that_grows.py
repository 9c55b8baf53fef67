"""A topic of a real Kafka gets more partitions below a feed that announces it, and a reader that runs follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import cast

from confluent_kafka.admin import AdminClient, NewPartitions
from prometheus_client import CollectorRegistry

from support.feed_run import CLOCK, WINDOW_BYTES, StillView, finish
from support.kafka import partitions_of
from support.pull_world import World, golden_world
from support.waiting import PATIENCE_S, eventually
from tistream.consume import open_protocol
from tistream.consume.consumer import FeedConsumer
from tistream.consume.feed_events import RowEvent
from tistream.consume.kafka_topics import KafkaTopics
from tistream.consume.reorder import ReadProgress, Step, Transaction
from tistream.consume.source_url import parse_source_url
from tistream.follow.tenant_view import TenantView
from tistream.wire.bulk.changefeeds import Move
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_cli.platform.local_kafka import LocalKafka

TOPIC, FEW, MANY = "grows", 2, 5
DOCUMENT = {
    "filter": {"rules": ["shop.orders"]},
    "sink": {"dispatchers": [{"matcher": ["*.*"], "partition": "index-value"}]},
    "tistream": {"admin-events": True},
}


@dataclass
class Kept:
    """What a consumer gives to its target (consumer.Target)."""

    rows: list[RowEvent] = field(default_factory=list)

    def progress(self) -> ReadProgress | None:
        return None

    def write(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, Transaction):
                self.rows += step.rows


def run(broker: LocalKafka, world: World, partitions: int, epoch: int, end_ts: int, revision: Revision) -> Holder:
    """The feed's next worker, up to `end_ts`."""
    uri = f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol&partition-num={partitions}"
    feed = parsed(uri, DOCUMENT)
    order = Order(world.tenant, TOPIC, 0, Fence(1, epoch), world.snapshot_ts, end_ts, revision)
    view = cast(TenantView, StillView(world))
    holder = Holder(
        Shard(order, Random(1)),
        lambda: view,
        lambda: KafkaSink(feed.target, order, CLOCK),
        feed.pipeline(),
        CLOCK,
        world.budget,
        WINDOW_BYTES,
        ChangefeedMetrics(CollectorRegistry()),
    )
    finish(holder)
    return holder


def test_a_reader_follows_the_rows_to_partitions_that_were_added(broker: LocalKafka) -> None:
    world = golden_world("everything")
    middle = world.snapshot_ts + (world.end_ts - world.snapshot_ts) * 11 // 100  # orders has rows before and after it
    run(broker, world, FEW, 1, middle, Revision())
    kept = Kept()
    topics = KafkaTopics(parse_source_url(f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol"), ())
    consumer = FeedConsumer(topics, open_protocol.decode, kept)
    eventually(lambda: (consumer.step(), consumer.ts >= middle)[1])
    before = len(kept.rows)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_partitions([NewPartitions(TOPIC, MANY)])[TOPIC].result(PATIENCE_S)
    eventually(lambda: partitions_of(broker.address, TOPIC) == list(range(MANY)))
    grown = Revision(1, Move(revision=1, ts=middle, cut=True, grows=True))
    holder = run(broker, world, MANY, 2, world.end_ts, grown)
    eventually(lambda: (consumer.step(), consumer.ts >= world.end_ts)[1])
    topics.close()
    assert 0 < before < len(kept.rows) == holder.report().rows
    acked = holder.shard.acked
    assert acked is not None
    assert min(one.messages for one in acked.topics[TOPIC][FEW:]) > 2, "rows went to the new partitions"
