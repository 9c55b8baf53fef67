"""Judges what changefeeds have written into a model of Kafka, by invariants 38 to 45 of docs/invariants.md: what each
partition must have comes from one read of the same pool that nothing has disturbed."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from support.model_kafka import ModelKafka, Record
from support.pull_world import World as PoolWorld
from support.pull_world import golden_world
from tistream.consume import canal_json, open_protocol
from tistream.consume.feed_events import ResolvedEvent
from tistream.model.ids import TenantKey
from tistream.read.cursor import Position, Scope
from tistream.read.scan import Scan
from tistream_changefeed.core import progress
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.core.progress import Fence, PartitionTally, Progress
from tistream_changefeed.core.segments import Segment, segments
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.verify.message_heads import MessageHead, reading
from tistream_changefeed.verify.message_windows import MessageWindows, shard_windows

DECODERS = {"open-protocol": open_protocol.decode, "canal-json": canal_json.decode}


@dataclass(frozen=True)
class Wanted:
    """A message of a row or a DDL that a partition must have. `barrier`: it is of a DDL."""

    commit_ts: int
    key: bytes | None
    value: bytes | None
    barrier: bool


@dataclass(frozen=True)
class Feed:
    """A feed of the world. `protocol` and `partitions` as in its URI, `shards` and `shards_max` as in its
    configuration; without `shards_max` the number of shards is fixed."""

    name: str
    protocol: str
    topic: str
    partitions: int
    shards: int = 1
    shards_max: int | None = None

    @property
    def uri(self) -> str:
        """Its sink URI: each event is a message of its own."""
        options = "&max-batch-size=1" if self.protocol == "open-protocol" else "&enable-tidb-extension=true"
        query = f"protocol={self.protocol}&partition-num={self.partitions}{options}"
        return f"kafka://broker:9092/{self.topic}?{query}"


def undisturbed(pool: PoolWorld, feed: Feed) -> tuple[dict[int, list[Wanted]], int]:
    """What each partition of a feed's topic must have without resolved messages, and the number of row events."""
    pipeline = parsed(feed.uri, {}).pipeline()
    out: dict[int, list[Wanted]] = {number: [] for number in range(feed.partitions)}
    rows = 0
    for segment in _segments(pool, feed.uri):
        encoded = pipeline.rows(segment.rows, lambda _: feed.partitions)
        rows += len(encoded.messages)
        sent = encoded.framed(encoded.messages)
        for one, ts in zip(sent.each(), sent.commit_ts.tolist(), strict=True):
            out[one.partition].append(Wanted(ts, one.key, one.value, barrier=False))
        if segment.ddl is not None:
            for one in pipeline.ddl(segment.ddl, pool.source.table, lambda _: feed.partitions):
                out[one.partition].append(Wanted(segment.ddl.commit_ts, one.key, one.value, barrier=True))
    return out, rows


def _segments(pool: PoolWorld, uri: str) -> Iterator[Segment]:
    moving = parsed(uri, {}).pipeline().splitting
    at = Position(pool.snapshot_ts)
    for batch in Scan(
        pool.source, Scope(pool.tenant), at, pool.end_ts, pool.budget, numbered=True, moving=moving
    ).batches():
        for segment in segments(batch.events, at, batch.through):
            yield segment
            at = segment.rows_end


@functools.cache
def undisturbed_set(name: str, feed: Feed) -> tuple[dict[int, list[Wanted]], int]:
    """The same of a golden set, worked out once a process."""
    return undisturbed(golden_world(name), feed)


@dataclass
class Judge:
    """Judges one feed. `told`: (ms, checkpoint_ts) as a user saw them."""

    kafka: ModelKafka
    tenant: TenantKey
    feed: Feed
    golden: str
    end_ts: int
    told: list[tuple[int, int]] = field(default_factory=list)

    def check(self) -> None:
        """Raise AssertionError with what is wrong."""
        wanted, rows = undisturbed_set(self.golden, self.feed)
        found = {number: list(self.kafka.committed(self.feed.topic, number)) for number in wanted}
        visible: list[tuple[int, int, int, bool]] = []  # (commit_ts, order, ms, barrier)
        for number, messages in wanted.items():
            own = [record for _, record in found[number] if self._resolved(record) is None]
            self._same(number, own, messages)
            self._check_resolved(number, [record for _, record in found[number]], messages)
            for record, one in zip(own, messages, strict=True):
                assert record.transaction is not None
                decided = record.transaction
                visible.append((one.commit_ts, decided.order, decided.at_ms, one.barrier))
        self._check_barriers(visible)
        self._check_told(visible)
        self._check_progress(rows)
        self._check_windows()

    def _same(self, number: int, found: list[Record], wanted: list[Wanted]) -> None:
        """Invariants 38 and 41: each message once, in order."""
        for at, (record, one) in enumerate(zip(found, wanted, strict=False)):
            assert (record.key, record.value) == (one.key, one.value), (
                f"{self.feed.name}-{number}: message {at} is {record.value!r}, not {one.value!r}"
            )
        assert len(found) == len(wanted), f"{self.feed.name}-{number}: {len(found)} messages, not {len(wanted)}"

    def _check_resolved(self, number: int, found: list[Record], wanted: list[Wanted]) -> None:
        """Invariant 42."""
        ts = iter(one.commit_ts for one in wanted)
        resolved = 0
        for record in found:
            told = self._resolved(record)
            if told is None:
                at = next(ts)
                assert at > resolved, f"{self.feed.name}-{number}: {at} stands behind resolved {resolved}"
            else:
                assert told > resolved, f"{self.feed.name}-{number}: resolved {told} after {resolved}"
                resolved = told
        assert resolved == self.end_ts, f"{self.feed.name}-{number}: the last resolved is {resolved}"

    def _resolved(self, record: Record) -> int | None:
        event = DECODERS[self.feed.protocol](record.key, record.value)[0]
        return event.ts if isinstance(event, ResolvedEvent) else None

    def _check_barriers(self, visible: list[tuple[int, int, int, bool]]) -> None:
        """Invariant 43, over all partitions: rows at or below a DDL are durable before it, and it before rows above."""
        ordered = sorted(visible)
        highest = list(accumulate((order for _, order, *_ in ordered), max))
        lowest = list(accumulate((order for _, order, *_ in reversed(ordered)), min))[::-1]
        stamps = [one[0] for one in ordered]
        for ts, order, _, barrier in ordered:
            if barrier:
                at = bisect_right(stamps, ts)
                assert highest[at - 1] <= order or self._all_barriers(ordered, ts, order), (
                    f"rows <= {ts} follow its DDL"
                )
                assert at == len(ordered) or lowest[at] > order, f"rows above {ts} are visible before its DDL"

    def _all_barriers(self, ordered: list[tuple[int, int, int, bool]], ts: int, order: int) -> bool:
        """Whether everything at or below `ts` that follows is a DDL of the same commit_ts."""
        return all(barrier and at == ts for at, other, _, barrier in ordered if at <= ts and other > order)

    def _check_told(self, visible: list[tuple[int, int, int, bool]]) -> None:
        """Invariant 39: at a checkpoint that was told, everything at or below it was in the sink."""
        ordered = sorted(visible)
        stamps = [one[0] for one in ordered]
        latest = list(accumulate((at_ms for _, _, at_ms, _ in ordered), max))
        for at_ms, checkpoint_ts in self.told:
            at = bisect_right(stamps, checkpoint_ts)
            assert at == 0 or latest[at - 1] <= at_ms, f"{self.feed.name}: {checkpoint_ts} was told at {at_ms}"

    def _check_progress(self, rows: int) -> None:
        """Invariants 39 and 40: the records say what the topic has, and no record of an older holder follows."""
        newest = [one for shard in range(self.feed.shards_max or self.feed.shards) if (one := self._newest(shard))]
        assert len(newest) >= self.feed.shards, f"{self.feed.name} has progress of {len(newest)} shards"
        counted = sum(one.rows for one in newest)
        assert counted == rows, f"{self.feed.name}: the progress counts {counted} rows, not {rows}"
        for number in range(self.feed.partitions):
            found = PartitionTally()
            for _, one in self.kafka.committed(self.feed.topic, number):
                found = found.plus(one.value)
            told = [one.topics.get(self.feed.topic, ()) for one in newest]
            mine = [tallies[number] for tallies in told if number < len(tallies) and tallies[number].messages]
            if len(mine) > 1 and self.feed.shards_max is not None:  # after a cut another shard has written it
                assert sum(one.messages for one in mine) == found.messages, f"{self.feed.name}-{number}: {mine}"
            else:
                assert mine == [found], f"{self.feed.name}-{number}: {mine} in place of {found}"

    def _check_windows(self) -> None:
        """Invariant 39: each fingerprint in the progress is that of the messages of its transaction."""
        how = reading(parsed(self.feed.uri, {}).config.protocol)
        assert not isinstance(how, str)
        topic = f"{self.feed.topic}-progress"
        records = (SentMessage(topic, 0, one.key, one.value) for _, one in self.kafka.committed(topic, 0))
        windows = MessageWindows(shard_windows(records, self.tenant, self.feed.name))
        for number in range(self.feed.partitions):
            for _, record in self.kafka.committed(self.feed.topic, number):
                for pair in how.events((record.key, record.value)):
                    head = how.head(pair)
                    if isinstance(head, MessageHead):
                        windows.add(SentMessage(self.feed.topic, number, *pair), head)
        found = windows.result(0, self.end_ts, None)
        assert found.differences == (), f"{self.feed.name}: {found.differences[:3]}"

    def _newest(self, shard: int) -> Progress | None:
        fence, last = Fence(0, 0), None
        for record in self._records(shard):
            assert record.fence >= fence, f"{self.feed.name}/{shard}: {record.fence} writes after {fence}"
            fence, last = record.fence, record
        return last

    def _records(self, shard: int) -> Iterator[Progress]:
        key = progress.record_key(self.tenant, self.feed.name, shard)
        for _, record in self.kafka.committed(f"{self.feed.topic}-progress", 0):
            if record.key == key and record.value is not None:
                yield progress.decode(self.tenant, record.value, "the progress topic")
