"""The loop of a consumer: it reads topics, puts their events in order, and writes them to a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tistream.consume.feed_events import AdminEvent, Event, Malformed
from tistream.consume.kafka_topics import TopicMessage
from tistream.consume.reorder import OutOfOrder, Partition, ReadProgress, Reorder, Step
from tistream.consume.source_url import Decode
from tistream.errors import CorruptObject

POLL_S = 0.5
GROWTH_POLLS = 120  # number of polls between two checks for new partitions of the topics


class Target(Protocol):
    """A system that a consumer writes to. A step is a transaction, a DDL or a resolved ts (reorder.Step). The target
    stores the reader's progress atomically with each step."""

    def progress(self) -> ReadProgress | None:
        """The progress that the target has stored; None if it has stored none."""

    def write(self, steps: Iterable[Step]) -> None:
        """Write the steps in order, each atomically with its progress."""


class Topics(Protocol):
    """The Kafka operations that the loop needs; kafka_topics.KafkaTopics implements them."""

    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of all topics."""

    def read_from(self, offsets: Mapping[Partition, int]) -> None:
        """Read each partition from the given offset on."""

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions until `resume`."""

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Continue to read paused partitions."""

    def poll(self, timeout_s: float) -> list[TopicMessage]:
        """The next messages; empty if none arrives within `timeout_s`."""


class FeedConsumer:
    """Reads the topics of one changefeed into a target.

    Rows are written to the target as whole transactions, once every partition has a resolved ts at or above their
    commit_ts. While more than `held_bytes_max` bytes of messages are buffered, the partitions that are ahead of the
    slowest one are paused.
    """

    def __init__(
        self,
        topics: Topics,
        decode: Decode,
        target: Target,
        *,
        repeats: bool = False,
        held_bytes_max: int = 256 << 20,
    ) -> None:
        """`repeats`: the producer may send a message again, as TiCDC does (reorder.Reorder)."""
        start = target.progress() or ReadProgress()
        self._topics, self._decode, self._target = topics, decode, target
        self._held_bytes_max = held_bytes_max
        self._reorder = Reorder(topics.partitions(), start, repeats=repeats)
        self._paused: frozenset[Partition] = frozenset()
        self._polls = 0
        self._offsets = {one: start.offsets.get(one, 0) for one in self._reorder.partitions()}
        topics.read_from(self._offsets)

    @property
    def ts(self) -> int:
        """The ts up to which the target has every event of the feed (inclusive)."""
        return self._reorder.ts

    def step(self, timeout_s: float = POLL_S) -> bool:
        """Poll once, and write to the target what has become complete: transactions, DDLs and a resolved ts. Returns
        whether a message arrived.

        Raises:
            CorruptObject: a message is not of the protocol, or breaks its order.
            The errors of `topics` and of `target`, such as Unavailable, TopicCut and TargetFailed.
        """
        records, grown = self._topics.poll(timeout_s), False
        for record in records:
            self._offsets[record.partition] = record.offset + 1
            events = self._events(record)
            grown = grown or any(isinstance(event, AdminEvent) for event in events)
            try:
                self._reorder.add(record.partition, record.offset, record.size, events)
            except OutOfOrder as error:
                raise CorruptObject(record.place, str(error)) from error
        if grown:  # the target has no event above its ts yet, so the new partitions are joined in time
            self._join_new_partitions()
        if steps := self._reorder.ready():
            self._target.write(steps)
        self._pace()
        self._look_for_growth()
        return bool(records)

    def _events(self, record: TopicMessage) -> list[Event]:
        try:
            return self._decode(record.key, record.value)
        except Malformed as error:
            raise CorruptObject(record.place, str(error)) from error

    def _pace(self) -> None:
        over = self._reorder.held_bytes > self._held_bytes_max
        wanted = self._reorder.ahead() if over else frozenset()
        if wanted != self._paused:
            self._topics.resume(self._paused - wanted)
            self._topics.pause(wanted - self._paused)
            self._paused = wanted

    def _look_for_growth(self) -> None:
        self._polls += 1
        if self._polls % GROWTH_POLLS == 0:
            self._join_new_partitions()

    def _join_new_partitions(self) -> None:
        fresh = set(self._topics.partitions()) - set(self._offsets)
        if not fresh:
            return
        for partition in sorted(fresh):
            self._reorder.add_partition(partition)
            self._offsets[partition] = 0
        self._topics.read_from(self._offsets)
        self._topics.pause(self._paused)
