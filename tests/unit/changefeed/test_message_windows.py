"""The windows in the progress records of several shards, of which an open transaction hides the newest."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa

from support.model_kafka import ModelKafka
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.read.cursor import Place, Position
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.core.progress import Fence, Progress, encode, record_key
from tistream_changefeed.dispatch.ownership import Ownership
from tistream_changefeed.fingerprints.fingerprint import by_table
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.fingerprints.windows import ComparedWindows, SentWindow
from tistream_changefeed.verify.message_heads import MessageHead
from tistream_changefeed.verify.message_windows import MessageWindows, shard_windows

TENANT = TenantKey("7", "acme")
TOPIC, RECORDS = "changes", "changes-progress"
NAME = ("shop", "orders")


def record(shard: int, at: Position, window: SentWindow) -> tuple[str, int, bytes, bytes]:
    """The record of a shard that has come to `at`."""
    value = encode(TENANT, Progress(at, 0, Fence(1, 1), shards=2), window)
    return RECORDS, 0, record_key(TENANT, "feed", shard), value


def window(after_ts: int, until_ts: int, *values: tuple[int, bytes]) -> SentWindow:
    stamps = np.array([ts for ts, _ in values], np.int64)
    hashes = event_hashes(stamps, (None, pa.array([value for _, value in values], pa.large_binary())))
    return SentWindow(after_ts, until_ts, by_table(hashes, stamps * 0, [NAME]))


class Feed:
    """A feed of two shards, of which the first one writes rows."""

    def __init__(self) -> None:
        clock = ManualClock(4_000_000_000_000)
        self.kafka = ModelKafka(clock.monotonic_ms, Random(1))
        self.kafka.topics = {TOPIC: [[], []], RECORDS: [[]]}
        self.partition = next(number for number in range(2) if Ownership(0, 2).has(TOPIC, number))
        self.epochs = [self.kafka.init(str(shard)) for shard in range(2)]
        self._clock = clock

    def begin(self, shard: int, at: Position, sent: SentWindow, *values: bytes) -> None:
        messages = [(TOPIC, self.partition, None, value) for value in values]
        self.kafka.append(str(shard), self.epochs[shard], [*messages, record(shard, at, sent)])

    def commit(self, shard: int) -> None:
        self.kafka.end(str(shard), self.epochs[shard], "committed", None)
        self._clock.advance(1_000)  # until its markers are written

    def records(self) -> list[SentMessage]:
        return [SentMessage(RECORDS, 0, one.key, one.value) for _, one in self.kafka.committed(RECORDS, 0)]

    def compared(self, records: list[SentMessage]) -> ComparedWindows:
        """These records against the messages that are there now."""
        windows = MessageWindows(shard_windows(records, TENANT, "feed"))
        for _, one in self.kafka.committed(TOPIC, self.partition):
            ts = int((one.value or b"").split(b".")[0])
            windows.add(SentMessage(TOPIC, self.partition, one.key, one.value), MessageHead(ts, *NAME, {}))
        return windows.result(100, 150, None)


def test_a_part_of_a_commit_whose_record_another_shard_hides_is_no_difference() -> None:
    feed = Feed()
    first, second = (120, b"120.1"), (120, b"120.2")
    feed.begin(0, Position(110), window(100, 110, (105, b"105.1")), b"105.1")
    feed.commit(0)
    feed.begin(0, Position(115), window(110, 115))
    feed.commit(0)
    inside = Position(120, Place.ROW, start_ts=119, table_id=1, key=b"k")
    feed.begin(0, inside, window(115, 120, first), first[1])
    feed.commit(0)
    feed.begin(1, Position(150), window(100, 150))  # open: nothing behind it is read
    feed.begin(0, Position(120), window(119, 120, second), second[1])
    feed.commit(0)
    hidden = feed.records()
    assert [one.key for one in hidden] == [record_key(TENANT, "feed", 0)] * 3
    feed.commit(1)
    assert feed.compared(hidden) == ComparedWindows(1), "the window up to 115"
    assert feed.compared(feed.records()) == ComparedWindows(3)
    feed.begin(0, Position(121), window(120, 121), b"121.1")
    feed.commit(0)
    assert len(feed.compared(feed.records()).differences) == 1
