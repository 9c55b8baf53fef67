"""Topics that are deleted, or get other partitions, below a feed: it stops, says what is wrong, and goes on as told."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from support.feed_run import StillView
from support.model_kafka import ModelKafka, Record
from support.pull_world import golden_world
from tistream.clock import ManualClock
from tistream.read.cursor import Position
from tistream.wire.bulk.changefeeds import Move
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.progress import Fence, PartitionTally, Progress, Revision, check_counts, check_there
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

URI = "kafka://broker:9092/changes?protocol=open-protocol"


class HalfView(StillView):
    """A pool that has resolved half of the set."""

    def resolved_ts(self) -> int:
        return (self.world.snapshot_ts + self.world.end_ts) // 2


class Feed:
    """A feed and its holders, one after the other."""

    def __init__(self) -> None:
        self.world, self.clock = golden_world("everything"), ManualClock(4_000_000_000_000)
        self.kafka = ModelKafka(self.clock.monotonic_ms, Random(1))
        self.kafka.topics["changes"] = [[], []]
        self.order = Order(self.world.tenant, "a", 0, Fence(1, 0), self.world.snapshot_ts)

    def held(self, uri: str = URI) -> Holder:
        """The next holder, after its first step."""
        self.clock.advance(60_000)
        self.order = order = replace(self.order, fence=Fence(1, self.order.fence.epoch + 1))
        clients = self.kafka.clients(lambda seconds: self.clock.advance(int(seconds * 1000) + 1), lambda: True)
        feed = parsed(uri, {})
        holder = Holder(
            Shard(order, Random(1)),
            lambda: HalfView(self.world),
            lambda: KafkaSink(feed.target, order, self.clock, clients),
            feed.pipeline(),
            self.clock,
            self.world.budget,
            8 << 20,
            ChangefeedMetrics(CollectorRegistry()),
        )
        holder.step()
        return holder

    def begun(self) -> int:
        """Send half of the set. Returns the checkpoint."""
        report = self.held().report()
        assert (report.phase, report.rows > 0) == ("running", True)
        assert report.checkpoint_ts is not None
        self.order = replace(self.order, known_ts=report.checkpoint_ts)
        return report.checkpoint_ts

    def count(self) -> int:
        self.clock.advance(1_000)
        return sum(len(list(self.kafka.committed("changes", number))) for number in (0, 1))


def test_a_feed_whose_progress_was_deleted_does_not_begin_anew_by_itself() -> None:
    feed = Feed()
    checkpoint_ts, sent = feed.begun(), feed.count()
    del feed.kafka.topics["changes-progress"]
    feed.kafka._stable.clear()
    report = feed.held().report()
    assert report.phase == "failed"
    assert f"resume the feed with checkpoint_ts {checkpoint_ts}" in (report.error or "")
    assert feed.count() == sent
    feed.order = replace(feed.order, known_ts=None, revision=Revision(1, Move(revision=1, ts=checkpoint_ts)))
    report = feed.held().report()
    assert (report.phase, report.checkpoint_ts, report.rows) == ("running", checkpoint_ts, 0), "no row is repeated"


def test_of_the_progress_records_the_newest_must_be_one_that_the_feed_knows() -> None:
    feed = Feed()
    feed.begun()
    [log] = feed.kafka.topics["changes-progress"]
    records = [at for at, record in enumerate(log) if not record.marker]
    log[records[0]] = replace(log[records[0]], value=b"{}")
    assert feed.held().report().phase == "running", "a newer one is behind it"
    newest = max(at for at, record in enumerate(log) if not record.marker)
    log[newest] = replace(log[newest], value=b"{}")
    report = feed.held().report()
    assert report.phase == "failed"
    assert "the progress record is not one of this feed's" in (report.error or "")


def test_a_feed_whose_topic_has_got_partitions_goes_on_with_those_that_it_wrote() -> None:
    feed = Feed()
    checkpoint_ts = feed.begun()
    feed.kafka.topics["changes"].append([])
    report = feed.held().report()
    assert report.phase == "failed"
    assert "update the sink URI to partition-num=2" in (report.error or "")
    assert feed.held(f"{URI}&partition-num=2").report().phase == "running"
    assert len(feed.kafka.topics["changes"][2]) == 0
    feed.order = replace(feed.order, revision=Revision(1, Move(revision=1, ts=checkpoint_ts)))
    moved = feed.held()
    assert moved.report().phase == "running"
    assert moved.shard.acked is not None
    assert len(moved.shard.acked.topics.get("changes", ())) in (0, 3), "the new number is accepted"


def test_a_topic_that_was_deleted_and_made_anew_is_noticed() -> None:
    feed = Feed()
    feed.begun()
    for partitions in ([[], []], [[], [], [], []]):
        feed.kafka.topics["changes"] = list(partitions)
        feed.kafka._stable.clear()
        report = feed.held().report()
        assert report.phase == "failed"
        assert "was deleted or has lost messages" in (report.error or "")


def test_a_topic_that_was_made_anew_and_filled_by_others_is_noticed() -> None:
    feed = Feed()
    checkpoint_ts, sent = feed.begun(), feed.count()
    feed.kafka.topics["changes"] = [[Record(None, b"of others", None)] * (2 * sent) for _ in range(2)]
    feed.kafka._stable.clear()
    report = feed.held().report()
    assert report.phase == "failed"
    assert "was deleted or has lost messages" in (report.error or "")
    feed.order = replace(feed.order, revision=Revision(1, Move(revision=1, ts=feed.world.snapshot_ts)))
    report = feed.held().report()
    assert (report.phase, report.checkpoint_ts) == ("running", checkpoint_ts), "all is sent again"
    assert feed.count() > 4 * sent
    assert feed.held().report().phase == "running", "the topic is known now"


def test_progress_is_missed_only_where_there_was_some() -> None:
    stored = Progress(Position(150), 140, Fence(5, 3))
    check_there(None, Fence(5, 4), None, "log")
    check_there(stored, Fence(5, 4), 150, "log")
    for found in (None, replace(stored, fence=Fence(4, 9))):
        with pytest.raises(FeedFailed, match="up to 120 were sent"):
            check_there(found, Fence(5, 4), 120, "log")


def test_another_number_of_partitions_is_refused_in_either_direction() -> None:
    stored = Progress(Position(150), 140, Fence(5, 3), topics={"t": (PartitionTally(1), PartitionTally(0)), "new": ()})
    check_counts(stored, {"t": {0: 1, 1: 0}, "new": {0: 5}})
    for ends in ({0: 1}, {0: 1, 1: 0, 2: 0}):
        with pytest.raises(FeedFailed, match="partition-num=2"):
            check_counts(stored, {"t": ends})
    check_counts(stored, {"t": {}})
    check_counts(stored, {"t": {0: 0, 1: 0, 2: 0}})
