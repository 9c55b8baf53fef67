"""The machine of a shard and its Kafka sink against a model of Kafka: whatever fails, each event is there once, in
order."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from support.earlier_kafka_sink import EarlierKafkaSink
from support.model_kafka import Faults, ModelKafka
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.read.cursor import Place, Position
from tistream.wire.bulk.changefeeds import Applied, Move
from tistream_changefeed.core.failure import Failure, FeedFailed
from tistream_changefeed.core.load import Load
from tistream_changefeed.core.outgoing import NOTHING, Outgoing, SentMessage
from tistream_changefeed.core.progress import (
    Fence,
    PartitionTally,
    Progress,
    Revision,
    check_kept,
    decode,
    encode,
    taken_over,
)
from tistream_changefeed.core.segments import windows
from tistream_changefeed.core.shard import Order, Shard, Transaction, everywhere, to_partitions
from tistream_changefeed.core.stopped import StoppedTable
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.fingerprints.windows import ComparedWindows
from tistream_changefeed.protocols.messages import Message
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.verify.message_heads import MessageHead
from tistream_changefeed.verify.message_windows import MessageWindows, shard_windows

TENANT = TenantKey("7", "acme")
ORDER = Order(TENANT, "orders", 0, Fence(1, 1), 100)
TOPICS = {"a": 2, "b": 3}
END = 400
DEATHS = 0.002  # of a process, between a request and its answer or before it


def history(rng: Random) -> dict[int, list[tuple[int, int]]]:
    """Rows by commit_ts: (topic, partition) of each."""
    return {
        ts: [(topic, rng.randrange(2 + topic)) for topic in (rng.randrange(2) for _ in range(rng.randrange(1, 6)))]
        for ts in sorted(rng.sample(range(101, END + 1), 80))
    }


def outgoing(rows: dict[int, list[tuple[int, int]]], low: int, high: int) -> Outgoing:
    """The messages of the rows in (low, high]; the value names commit_ts and number."""
    found = [(ts, topic, partition, at) for ts in sorted(rows) if low < ts <= high
             for at, (topic, partition) in enumerate(rows[ts])]  # fmt: skip
    columns = [np.array([one[at] for one in found], np.int64) for at in range(3)]
    values = pa.array([b"%d.%d" % (ts, at) for ts, _, _, at in found], pa.large_binary())
    hashes = event_hashes(columns[0], (None, values))
    names = ("d", "a"), ("d", "b")
    return Outgoing(("a", "b"), columns[1], columns[2], None, values, columns[0], columns[1], None, hashes, names)


class Killed(Exception):
    """The process is dead: it has not even left the broker."""


class Life:
    """Holders one after the other, and sometimes two at once."""

    def __init__(self, seed: int, tenant: TenantKey = TENANT, *, earlier: bool = False) -> None:
        """`earlier`: some of the first holders are workers of an earlier release."""
        self.rng, self.tenant, self.earlier = Random(seed), tenant, earlier
        self.rows = history(self.rng)
        self.ddls = set(self.rng.sample(sorted(self.rows), 5))
        self.clock = ManualClock(4_000_000_000_000)
        faults = Faults(lost=0.02, unanswered=0.03, refused=0.03, doubtful=0.05)
        self.kafka = ModelKafka(self.clock.monotonic_ms, self.rng, faults)
        self.kafka.topics = {topic: [[] for _ in range(count)] for topic, count in TOPICS.items()}
        self.epoch = 0
        self._passed_s = 0.0
        self._mortal = True

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def run(self) -> None:
        """Until the shard has finished."""
        paused: list[tuple[Shard, KafkaSink]] = []
        shard = self._new_shard()
        while shard.phase != "finished":
            clients = self.kafka.clients(self._pause, lambda: True)
            earlier = self.earlier and self.epoch < 8 and self.rng.random() < 0.5
            kind = EarlierKafkaSink if earlier else KafkaSink
            sink = kind(KafkaTarget(("broker:9092",), "a"), shard.order, self.clock, clients)
            try:
                opened = self._open(shard, sink)
                if opened and self._work(shard, sink):
                    break
            except Killed:
                opened = False
                shard = self._new_shard()
            if opened and shard.phase == "running":
                paused.append((shard, sink))  # paused: it may wake up later
            if shard.phase != "retrying" or self.rng.random() < 0.5:
                shard = self._new_shard()
            if paused and self.rng.random() < 0.5:
                self._wake(*paused.pop())

    def _new_shard(self) -> Shard:
        self.epoch += 1
        return Shard(replace(ORDER, tenant=self.tenant, fence=Fence(1, self.epoch), end_ts=END), self.rng)

    def _pause(self, seconds: float) -> None:
        if self._mortal and self.rng.random() < DEATHS:
            raise Killed
        self._passed_s += seconds
        whole_ms = int(self._passed_s * 1_000)
        self.clock.advance(whole_ms)
        self._passed_s -= whole_ms / 1_000

    def _open(self, shard: Shard, sink: KafkaSink) -> bool:
        try:
            found, ends = sink.open()
            opening = shard.opened(found, ends, "log")
            sink.write(opening)
            shard.acknowledged(opening, self.now_ms)
            assert sink.partitions("b") == TOPICS["b"]
        except FeedFailed as error:
            shard.failed(error.failure, self.now_ms)
            sink.close()
            return False
        return True

    def _work(self, shard: Shard, sink: KafkaSink) -> bool:
        """Send until it finishes, fails or is killed; whether it has finished."""
        while shard.phase != "finished":
            if self.rng.random() < 0.15:
                return False
            try:
                self._step(shard, sink)
            except FeedFailed as error:
                shard.failed(error.failure, self.now_ms)
                sink.close()
                return False
            self._check_report(shard)
        return True

    def _step(self, shard: Shard, sink: KafkaSink) -> None:
        self._pause(self.rng.choice((0.01, 0.5, 2.0)))
        if shard.at.place is Place.DDL:  # each commit_ts has one
            shard.skip(Position(shard.at.commit_ts))
        at = shard.at
        low = at.low_ts
        ddl = min((ts for ts in self.ddls if ts > low and at < Position(ts, Place.DDL, table_id=1)), default=END)
        high = min(ddl, low + self.rng.randrange(1, 60), END)
        messages = outgoing(self.rows, at.commit_ts, high)  # at a place inside of a commit_ts its rows were sent
        at_ddl = high in self.ddls
        until = Position(high, Place.ROW, start_ts=1) if at_ddl else Position(high)
        for window in windows(messages.commit_ts, messages.sizes, 30, until):
            part = messages.between(window.start, window.end)
            ts = shard.resolved_ts_due(window.until, self.now_ms, reaches_end=window.end == len(messages))
            if ts is None:
                transaction = shard.send(part, len(part), (), window.until)
            else:
                marks = everywhere(Message(None, b"resolved %d" % ts), sink.topics())
                transaction = shard.resolve(part, len(part), marks, ts, window.until)
            self._write(shard, sink, transaction.with_fingerprints(part.fingerprints()))
        shard.skip(until)
        if at_ddl:
            marks = to_partitions(Message(None, b"ddl %d" % high), TOPICS["a"], "a")
            end = Position(high, Place.DDL, table_id=1)
            self._write(shard, sink, shard.send(NOTHING, 0, marks, end))
            shard.skip(Position(high))
        ts = shard.resolved_ts_due(shard.at, self.now_ms, reaches_end=shard.at.commit_ts == END)
        if ts is not None:
            marks = everywhere(Message(None, b"resolved %d" % ts), sink.topics())
            self._write(shard, sink, shard.resolve(NOTHING, 0, marks, ts, shard.at))

    def _write(self, shard: Shard, sink: KafkaSink, transaction: Transaction) -> None:
        sink.write(transaction)
        shard.acknowledged(transaction, self.now_ms)

    def _stored(self) -> Progress:
        """The newest committed record; its transaction may not be marked everywhere yet."""
        records = self.kafka.topics["a-progress"][0]
        values = [one.value for one in records if one.transaction and one.transaction.state == "committed"]
        return decode(self.tenant, [value for value in values if value is not None][-1], "log")

    def _check_report(self, shard: Shard) -> None:
        """A checkpoint that is reported is never above what the log has."""
        assert shard.acked is not None
        assert shard.acked.at <= self._stored().at

    def _wake(self, shard: Shard, sink: KafkaSink) -> None:
        """An old holder goes on with what it had: the broker refuses it, once another has opened."""
        self._mortal = False
        before, decided = self._stored(), self.kafka.decided
        transaction = shard.send(NOTHING, 0, (), shard.at)
        if before.fence > shard.order.fence:
            with pytest.raises(FeedFailed):
                sink.write(transaction)
            assert (self._stored(), self.kafka.decided) == (before, decided)
        sink.close()
        self._mortal = True

    def check(self) -> None:
        """Each event is there once and in order, no row follows a resolved or a DDL that covers it."""
        self._mortal = False
        self._pause(1)
        expected: dict[tuple[str, int], list[str]] = {}
        for ts, rows in sorted(self.rows.items()):
            for at, (topic, partition) in enumerate(rows):
                expected.setdefault(("ab"[topic], partition), []).append(f"{ts}.{at}")
        for topic, count in TOPICS.items():
            for number in range(count):
                seen = [(one.value or b"").decode() for _, one in self.kafka.committed(topic, number)]
                rows = [one for one in seen if " " not in one]
                assert rows == expected.get((topic, number), [])
                assert seen[-1] == f"resolved {END}"
                resolved = barrier = 0
                for one in seen:
                    if one.startswith("resolved"):
                        assert int(one.split()[1]) > resolved
                        resolved = int(one.split()[1])
                    elif one.startswith("ddl"):
                        assert int(one.split()[1]) > max(resolved, barrier)
                        barrier = int(one.split()[1])
                    else:
                        assert int(one.split(".")[0]) > max(resolved, barrier)
                ddls = [int(one.split()[1]) for one in seen if one.startswith("ddl")]
                assert ddls == (sorted(self.ddls) if topic == "a" else [])
        progress = self._stored()
        assert progress.rows == sum(map(len, self.rows.values()))
        for topic, tallies in progress.topics.items():
            for number, tally in enumerate(tallies):
                found = PartitionTally()
                for _, one in self.kafka.committed(topic, number):
                    found = found.plus(one.value)
                assert tally == found
        assert self.windows(lost=0).differences == ()
        assert len(self.windows(lost=1).differences) == 1

    def windows(self, lost: int) -> ComparedWindows:
        """The windows in the progress records against the committed messages, but for the newest `lost` ones."""
        records = [SentMessage("a-progress", 0, one.key, one.value) for _, one in self.kafka.committed("a-progress", 0)]
        windows = MessageWindows(shard_windows(records, self.tenant, ORDER.feed_id))
        seen = [
            (SentMessage(topic, number, one.key, one.value), int((one.value or b"").split(b".")[0]))
            for topic, count in TOPICS.items()
            for number in range(count)
            for _, one in self.kafka.committed(topic, number)
            if b" " not in (one.value or b"")
        ]
        for one, ts in sorted(seen, key=lambda pair: pair[1])[: len(seen) - lost]:
            windows.add(one, MessageHead(ts, "d", one.topic, {}))
        found = windows.result(ORDER.start_ts, END, None)
        assert found.count > 5
        return found


@pytest.mark.parametrize("seed", range(40))
def test_each_event_is_sent_once_and_in_order_whatever_fails(seed: int) -> None:
    life = Life(seed)
    life.run()
    life.check()


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("seed", range(40, 60))
def test_each_event_is_sent_once_under_a_dotted_id_whatever_fails(seed: int, earlier: bool) -> None:
    life = Life(seed, TenantKey("7", "acme-eu"), earlier=earlier)
    life.run()
    life.check()


def test_windows_end_between_commit_ts_and_are_cut_by_bytes() -> None:
    rng = Random(3)
    for _ in range(200):
        commit_ts = np.sort(np.array([rng.randrange(1, 30) for _ in range(rng.randrange(1, 60))], np.int64))
        sizes = np.array([rng.randrange(1, 50) for _ in commit_ts], np.int64)
        limit = rng.randrange(1, 200)
        found = list(windows(commit_ts, sizes, limit, Position(99)))
        assert [one.start for one in found] == [0, *(one.end for one in found[:-1])]
        assert found[-1].end == len(commit_ts)
        assert found[-1].until == Position(99)
        for one in found:
            inside = commit_ts[one.start : one.end]
            assert one.end == len(commit_ts) or commit_ts[one.end] > inside[-1]
            assert sizes[one.start : one.end].sum() <= limit or len(set(inside.tolist())) == 1
            assert one.end == len(commit_ts) or one.until == Position(int(inside[-1]))
    assert list(windows(np.empty(0, np.int64), np.empty(0, np.int64), 10, Position(1))) == []


def test_only_the_owner_and_a_newer_holder_go_on() -> None:
    stored = Progress(Position(150), 150, Fence(5, 3))
    assert taken_over(stored, Fence(5, 3), 100, "log").at == Position(150)
    assert taken_over(stored, Fence(5, 4), 100, "log").fence == Fence(5, 4)
    assert taken_over(stored, Fence(6, 1), 120, "log").at == Position(120), "the feed was created anew"
    assert taken_over(None, Fence(5, 1), 100, "log").at == Position(100)
    for older in (Fence(5, 2), Fence(4, 9)):
        with pytest.raises(FeedFailed) as found:
            taken_over(stored, older, 100, "log")
        assert found.value.failure.kind == "fenced"


def test_progress_is_read_back_as_it_was_written() -> None:
    at = Position(150, Place.ROW, 149, 7, 1, b"k\x00")
    progress = Progress(at, 140, Fence(5, 3), 12, 345, {"t": (PartitionTally(3, 77), PartitionTally())})
    assert decode(TENANT, encode(TENANT, progress), "log") == progress
    changed = replace(progress, applied=Applied(revision=3, from_ts=149, after_ts=149), skipped=2)
    assert decode(TENANT, encode(TENANT, changed), "log") == changed
    waiting = replace(progress, ddl=at)
    assert decode(TENANT, encode(TENANT, waiting), "log") == waiting
    versions = [json.loads(encode(TENANT, one))["version"] for one in (progress, changed, waiting)]
    assert versions == [1, 1, 2], "a program that knows version 1 alone does not go on without the DDL"
    refused = StoppedTable(("d", "t"), at, "why", stage="sink")
    stopped = replace(progress, stopped=(refused, replace(refused, name=("d", "u"), stage="encode", left=True)))
    assert decode(TENANT, encode(TENANT, stopped), "log") == stopped
    loading = replace(progress, load=Load(150, 7, "d.t", b"k\x00"))
    assert decode(TENANT, encode(TENANT, loading), "log") == loading
    assert json.loads(encode(TENANT, replace(loading, ddl=at)))["version"] == 3
    newer = json.dumps({**json.loads(encode(TENANT, waiting)), "version": 6}).encode()
    for spoiled in (b"", b"{}", b"[]", encode(TenantKey("7", "other"), progress), b'{"version":2}', newer):
        with pytest.raises(FeedFailed) as found:
            decode(TENANT, spoiled, "log")
        assert found.value.failure.kind == "failed"


def test_a_new_feed_begins_with_rows_and_ends_once_they_are_loaded() -> None:
    order = replace(ORDER, fence=Fence(2, 1), end_ts=100)
    for found in (None, Progress(Position(180), 0, Fence(1, 3))):
        shard = Shard(order, Random(1))
        begun = shard.opened(found, {}, "log", loads=True)
        assert begun.progress.load == Load(100)
        shard.acknowledged(begun, 0)
        shard.acknowledged(shard.load(NOTHING, 0, (), Load(100, 7, "d.t")), 0)
        assert shard.phase == "running"
        assert [one.object for one in shard.held_by()] == ["d.t"]
        shard.acknowledged(shard.load(NOTHING, 0, (), None), 0)
        assert shard.phase == "finished"
    kept = Progress(Position(150), 0, Fence(2, 1), load=Load(100, 7))
    assert Shard(order, Random(1)).opened(kept, {}, "log", loads=True).progress.load == Load(100, 7)
    assert Shard(order, Random(1)).opened(replace(kept, load=None), {}, "log", loads=True).progress.load is None
    moved = replace(order, revision=Revision(1, Move(revision=1, ts=120)))
    assert Shard(moved, Random(1)).opened(None, {}, "log", loads=True).progress.load is None


def test_a_log_that_is_shorter_than_what_was_sent_stops_the_feed() -> None:
    progress = Progress(Position(150), 150, Fence(5, 3), topics={"t": (PartitionTally(3), PartitionTally(2))})
    check_kept(progress, {"t": {0: 3, 1: 9}})
    for ends in ({}, {"t": {0: 3}}, {"t": {0: 2, 1: 2}}):
        with pytest.raises(FeedFailed, match="has lost messages"):
            check_kept(progress, ends)


def opened(order: Order, found: Progress | None, ends: dict[str, dict[int, int]] | None = None) -> Progress:
    """The progress with which a holder of this order begins."""
    return Shard(order, Random(1)).opened(found, ends or {}, "log").progress


def test_a_change_is_in_force_from_where_the_sink_is_and_every_later_holder_says_the_same() -> None:
    stored = Progress(Position(150), 140, Fence(1, 1))
    changed = replace(ORDER, fence=Fence(1, 2), revision=Revision(1))
    first = opened(changed, stored)
    assert first.applied == Applied(revision=1, from_ts=150, after_ts=150)
    later = replace(first, at=Position(180))
    assert opened(replace(changed, fence=Fence(1, 3)), later).applied == first.applied
    inside = replace(stored, at=Position(151, Place.ROW, 1))
    assert opened(changed, inside).applied == Applied(revision=1, from_ts=150, after_ts=150)


@pytest.mark.parametrize("ts", [120, 190], ids=["back", "forward"])
def test_a_checkpoint_is_moved_once(ts: int) -> None:
    stored = Progress(Position(150), 140, Fence(1, 1), rows=7)
    order = replace(ORDER, fence=Fence(1, 2), revision=Revision(2, Move(revision=2, ts=ts)))
    moved = opened(order, stored)
    assert (moved.at, moved.resolved_ts, moved.rows) == (Position(ts), 140, 7)
    assert moved.applied == Applied(revision=2, from_ts=150, after_ts=ts)
    later = replace(moved, at=Position(195))
    assert opened(replace(order, fence=Fence(1, 3)), later).at == Position(195), (
        "the next holder does not move it again"
    )
    again = replace(order, fence=Fence(1, 4), revision=Revision(3, Move(revision=2, ts=ts)))
    assert opened(again, later).at == Position(195), "nor does the next change"
    assert opened(order, None).at == Position(ts), "a sink without progress begins there"


def test_a_move_accepts_that_messages_are_lost() -> None:
    stored = Progress(
        Position(150),
        140,
        Fence(1, 1),
        topics={"t": (PartitionTally(3), PartitionTally(2)), "kept": (PartitionTally(1),)},
    )
    ends = {"t": {0: 0, 1: 0}, "kept": {0: 5}}
    with pytest.raises(FeedFailed, match="resume the feed with the checkpoint_ts"):
        opened(replace(ORDER, fence=Fence(1, 2), revision=Revision(1)), stored, ends)
    moved = opened(replace(ORDER, fence=Fence(1, 2), revision=Revision(1, Move(revision=1, ts=120))), stored, ends)
    assert moved.topics == {"kept": (PartitionTally(1),)}


def test_a_replay_sends_no_resolved_message_until_it_has_passed_the_highest_one() -> None:
    order = replace(ORDER, end_ts=140, revision=Revision(1, Move(revision=1, ts=110)))
    shard = Shard(order, Random(1))
    shard.acknowledged(shard.opened(Progress(Position(140), 140, Fence(1, 1)), {}, "log"), 0)
    assert shard.phase == "running"
    shard.acknowledged(shard.send(NOTHING, 0, (), Position(120)), 0)
    shard.skip(Position(140))
    assert shard.resolved_ts_due(shard.at, 60_000, reaches_end=True) is None
    assert shard.end_unstored
    shard.acknowledged(shard.send(NOTHING, 0, (), shard.at), 0)
    assert (shard.phase, shard.end_unstored) == ("finished", False)


def test_a_feed_that_cannot_write_waits_longer_each_time_and_says_why() -> None:
    shard = Shard(ORDER, Random(1))
    shard.acknowledged(shard.opened(None, {}, "log"), 0)
    failure = Failure("retry", "sink", "orders-0", "no broker answers")
    pauses = []
    for _ in range(9):
        shard.failed(failure, 1_000)
        pauses.append(shard.retry_at_ms - 1_000)
        shard.acknowledged(shard.opened(shard.acked, {}, "log"), 1_000)
        assert shard.phase == "retrying", "an opened sink is not a written one"
    assert all(
        0.8 * base <= pause <= 1.2 * base for pause, base in zip(pauses, [1_000 * 2**n for n in range(6)], strict=False)
    )
    assert max(pauses) <= 72_000
    assert [(one.stage, one.object) for one in shard.held_by()] == [("sink", "orders-0")]
    assert shard.since_ms == 1_000
    shard.acknowledged(shard.send(NOTHING, 0, (), Position(120)), 2_000)
    assert (shard.phase, list(shard.held_by())) == ("running", [])


def test_a_feed_whose_credentials_are_refused_for_ten_minutes_fails_and_others_go_on_trying() -> None:
    refused = Failure("retry", "sink", "orders", "the broker refuses sasl-user", refused=True)
    away = Failure("retry", "sink", "orders", "no broker answers")
    shard = Shard(ORDER, Random(1))
    for now_ms in range(0, 3_600_000, 60_000):
        shard.failed(away if now_ms % 540_000 == 0 else refused, now_ms)
        assert shard.phase == "retrying", "the broker was away in between"
    shard.failed(away, 3_700_000)
    for now_ms in range(4_000_000, 4_600_000, 60_000):
        shard.failed(refused, now_ms)
        assert shard.phase == "retrying"
    shard.failed(refused, 4_600_000)
    assert (shard.phase, next(shard.held_by()).reason) == (
        "failed",
        "the broker refuses sasl-user; then resume the feed",
    )


def test_only_what_the_sink_has_acknowledged_is_reported() -> None:
    shard = Shard(ORDER, Random(1))
    shard.acknowledged(shard.opened(None, {}, "log"), 0)
    first, second = (shard.send(NOTHING, 0, (), Position(ts)) for ts in (110, 120))
    shard.skip(Position(130))
    for transaction, reported in ((None, 100), (first, 110), (second, 120)):
        if transaction is not None:
            shard.acknowledged(transaction, 0)
        assert shard.acked is not None
        assert shard.acked.checkpoint_ts == reported
