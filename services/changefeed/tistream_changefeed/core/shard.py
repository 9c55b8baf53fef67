"""The state machine of one shard, the part of a feed that one worker (the holder) writes: decides what the holder
reads, sends and reports. Pure.

A holder opens the sink, which fences the previous holder. Then it calls `opened`, which returns a transaction. The
holder writes it first, so that the sink knows the new fence before anything else happens. Then the holder reads events
after `at`, encodes them, and writes one Transaction after the other. The reported checkpoint is that of `acked`, the
progress that the sink has acknowledged (invariant 39). After any failure the holder opens the sink again and continues
from the progress in the sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from tistream.model.ids import TenantKey
from tistream.read.cursor import Place, Position
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import HeldBy, HeldStage, Phase
from tistream_changefeed.core import back_off, progress
from tistream_changefeed.core.failure import Failure
from tistream_changefeed.core.load import Load
from tistream_changefeed.core.outgoing import NOTHING, Mark, Payload, SentMessage
from tistream_changefeed.core.progress import Fence, Progress, Revision
from tistream_changefeed.core.resolved_schedule import BUSY_MS, IDLE_MS, ResolvedSchedule
from tistream_changefeed.core.stopped import StoppedTable, replaced
from tistream_changefeed.fingerprints.fingerprint import Fingerprints
from tistream_changefeed.fingerprints.windows import SentWindow
from tistream_changefeed.protocols.messages import Message

REFUSED_MS = 600_000  # the feed fails after credentials were refused for so long


@dataclass(frozen=True, slots=True)
class Order:
    """The assignment of a shard to a worker by the meta server. A sink that has no progress begins after `start_ts`.
    The feed finishes at `end_ts`, inclusive."""

    tenant: TenantKey
    feed_id: str
    shard: int
    fence: Fence
    start_ts: int
    end_ts: int | None = None
    revision: Revision = progress.FIRST
    shards: int = 1  # of the feed
    known_ts: int | None = None  # a checkpoint that the sink has acknowledged; None: the sink may be empty
    cutting: bool = False  # the feed is cut at `end_ts`, and writes the partitions that it has written until then

    @property
    def name(self) -> str:
        """The name of the shard in logs and errors."""
        return f"{self.tenant}/{self.feed_id}/{self.shard}"


@dataclass(frozen=True, slots=True)
class Transaction:
    """The content of one atomic step of the sink: the events of rows, then `marks` (DDLs, resolved messages, dead
    letters), then the progress. `window`: the range of the events and their fingerprints; None for a transaction that
    sends nothing of a range."""

    rows: Payload
    marks: tuple[Mark, ...]
    progress: Progress
    window: SentWindow | None = None

    def with_fingerprints(self, tables: Fingerprints) -> Transaction:
        """The same transaction with the fingerprints of its events."""
        return self if self.window is None else replace(self, window=replace(self.window, tables=tables))


def to_partitions(message: Message, count: int, topic: str) -> tuple[SentMessage, ...]:
    """The copies of a message that is not a row, such as a DDL, for a topic with `count` partitions: one for each
    partition, or only for the first if `message` says so."""
    numbers = range(count) if message.every_partition else range(1)
    return tuple(SentMessage(topic, number, message.key, message.value) for number in numbers)


def everywhere(message: Message, topics: Mapping[str, int]) -> tuple[SentMessage, ...]:
    """The copies of a message that is not a row, such as a resolved ts: one for every partition of every topic
    (invariant 42). `topics`: the number of partitions by topic."""
    return tuple(
        SentMessage(topic, number, message.key, message.value)
        for topic, count in sorted(topics.items())
        for number in range(count)
    )


class Shard:
    """The state of one shard at the worker that holds it. Times are monotonic ms."""

    def __init__(self, order: Order, rng: Random, resolved_every_ms: int = IDLE_MS) -> None:
        self.order = order
        self.phase: Phase = "running"
        self.failure: Failure | None = None
        self.since_ms: int | None = None  # of the failure
        self.retry_at_ms = 0
        self.retries = 0
        self.grown_ts: int | None = None  # above it rows go to another number of partitions, which is not announced yet
        self._failures = 0  # in a row
        self._refused_ms: int | None = None  # since when the sink refuses the credentials
        self._rng = rng
        self._every_ms = resolved_every_ms
        self._pacing = ResolvedSchedule(resolved_every_ms)
        self._acked: Progress | None = None
        self._planned: Progress | None = None
        self._sent_ts = 0  # the transactions have windows up to this ts

    @property
    def acked(self) -> Progress | None:
        """The progress that the sink has acknowledged to this worker. None before the sink has acknowledged the
        transaction that `opened` returned, each time that the sink is opened."""
        return self._acked

    @property
    def at(self) -> Position:
        """The position after which the holder reads the next events. Call this after `opened`."""
        assert self._planned is not None
        return self._planned.at

    @property
    def uncommitted(self) -> bool:
        """Whether the sink has not acknowledged yet that the shard has reached its position."""
        return self._planned is not None and self._acked is not None and self._acked.at < self._planned.at

    @property
    def ddl(self) -> Position | None:
        """The position after the newest DDL; None before the first DDL, and in a feed with one shard."""
        return None if self._planned is None else self._planned.ddl

    @property
    def end_unstored(self) -> bool:
        """Whether the shard has read up to the feed's end, but the progress in the sink does not show it. That happens
        after the checkpoint was moved back, because no resolved message is sent below a higher one that was sent
        before."""
        planned = self._planned
        return self.uncommitted and planned is not None and not progress.within(planned.at, self.order.end_ts)

    @property
    def resolved_unstored(self) -> bool:
        """Whether a resolved ts was written that the sink has not acknowledged yet, because it collects rows first."""
        return (
            self._planned is not None
            and self._acked is not None
            and self._acked.resolved_ts < self._planned.resolved_ts
        )

    @property
    def resolved_unsent(self) -> bool:
        """Whether the shard has read beyond the ts of the newest resolved message, so that another one will be
        due. False inside a commit_ts, and while a stopped table holds resolved messages back."""
        planned, at = self._planned, self.at
        if planned is None or at.place is not Place.DONE or at.commit_ts <= planned.resolved_ts:
            return False
        return not any(one.at.low_ts < at.commit_ts for one in planned.holding)

    # ---- opening

    def opened(
        self, found: Progress | None, ends: Mapping[str, Mapping[int, int]], where: str, *, loads: bool = False
    ) -> Transaction:
        """Continue from `found`, the progress in the sink; None if the sink has no progress. `ends` has the end offsets
        of the topics in `found`. `where` names the sink in errors. `loads`: a feed that is new begins with the rows of
        its tables. Returns the transaction that raises the fence in the sink, which must be written first. Raises
        FeedFailed."""
        acked = None if self._acked is None else self._acked.checkpoint_ts
        known = [ts for ts in (self.order.known_ts, acked) if ts is not None]
        progress.check_there(found, self.order.fence, max(known, default=None), where)
        before = progress.taken_over(found, self.order.fence, self.order.start_ts, where)
        if (
            loads
            and self.order.revision.moved is None
            and (found is None or found.fence.generation < before.fence.generation)
        ):
            before = replace(before, load=Load(self.order.start_ts))
        mine = replace(progress.revised(before, self.order.revision, ends), shards=self.order.shards)
        progress.check_counts(mine, ends)
        progress.check_kept(mine, ends)
        self._planned = self._acked = None
        self._pacing = ResolvedSchedule(self._every_ms)
        # The others are met on the way.
        ahead = tuple(one for one in mine.stopped if one.left or one.limit is not None or one.at < mine.at)
        self._planned, self._sent_ts = replace(mine, stopped=ahead), mine.at.low_ts
        self.grown_ts = progress.grown_ts(before, self.order.revision)
        return Transaction(NOTHING, (), self._planned)

    def announce(self, marks: tuple[Mark, ...]) -> Transaction:
        """Make a transaction with the messages `marks`, which announce that the number of partitions has
        changed. It is written in place of the transaction that `opened` returned."""
        assert self._planned is not None
        self._planned = self._planned.moved(self._planned.at, NOTHING, marks, 0, None)
        return Transaction(NOTHING, marks, self._planned)

    # ---- loading

    @property
    def loading(self) -> Load | None:
        """The progress of the load of the initial rows; None if all of them are in the sink, or the feed begins without
        rows. Call this after `opened`."""
        assert self._planned is not None
        return self._planned.load

    def load(
        self, rows: Payload, events: int, marks: tuple[Mark, ...], load: Load | None, skipped: int = 0
    ) -> Transaction:
        """Make the transaction for some of the initial rows. `load` is the progress of the load after it; None:
        all of them are loaded. The other arguments are those of `send`."""
        assert self._planned is not None
        moved = self._planned.moved(self._planned.at, rows, marks, events, None, skipped)
        self._planned = replace(moved, load=load)
        return Transaction(rows, marks, self._planned)

    # ---- sending

    def high(self, resolved_ts: int) -> int:
        """The ts up to which (inclusive) events may be sent now: `resolved_ts`, up to which the tenant's rows
        are complete, or the feed's end if that is lower."""
        return resolved_ts if self.order.end_ts is None else min(resolved_ts, self.order.end_ts)

    def skip(self, until: Position) -> None:
        """Move the position to `until` without sending anything. The next transaction stores it in the sink."""
        assert self._planned is not None
        planned = self._planned
        self._planned = planned.moved(max(planned.at, until), NOTHING, (), 0, None)

    def send(
        self, rows: Payload, events: int, marks: tuple[Mark, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """Make the transaction for one window of messages, which contain `events` row events, and then `marks`. Moves
        the position to `until`. `skipped` is the number of dead letters among `marks`."""
        return self._planning(rows, events, marks, until, None, skipped)

    def send_ddl(self, marks: tuple[Mark, ...], until: Position, skipped: int) -> Transaction:
        """Make the transaction with this shard's copies of a DDL, in a feed with several shards. The shard may have no
        copies. Moves the position to `until`, the position after the DDL."""
        assert self._planned is not None
        self._planned = replace(self._planned, ddl=until)
        return self._planning(NOTHING, 0, marks, until, None, skipped)

    def resolved_ts_due(self, until: Position, now_ms: int, *, reaches_end: bool) -> int | None:
        """The ts of the resolved message with which the transaction up to `until` should end; None if it should have no
        such message. `reaches_end`: the transaction contains the last events that can be read now, so a resolved
        message is sent for readers that wait."""
        planned = self._planned
        if planned is None or until.place is not Place.DONE or until.commit_ts <= planned.resolved_ts:
            return None
        if any(one.at.low_ts < until.commit_ts for one in planned.holding):
            return None
        return until.commit_ts if reaches_end or self._pacing.due_in_ms(now_ms) == 0 else None

    def resolve(
        self, rows: Payload, events: int, message: tuple[Mark, ...], ts: int, until: Position, skipped: int = 0
    ) -> Transaction:
        """Make the transaction for one window of messages that ends with the resolved messages `message` for `ts`.
        Moves the position to `until`."""
        return self._planning(rows, events, message, until, ts, skipped)

    def due_in_ms(self, now_ms: int) -> int:
        """Milliseconds until a resolved message is due; at least BUSY_MS while a stopped table holds the checkpoint
        back, because no resolved message can be sent then."""
        due_ms = self._pacing.due_in_ms(now_ms)
        return max(due_ms, BUSY_MS) if self._planned is not None and self._planned.holding else due_ms

    def _planning(
        self,
        rows: Payload,
        events: int,
        marks: tuple[Mark, ...],
        until: Position,
        resolved_ts: int | None,
        skipped: int,
    ) -> Transaction:
        planned = self._planned
        assert planned is not None
        assert until >= planned.at, f"{until} lies before {planned.at}"
        self._planned = planned.moved(until, rows, marks, events, resolved_ts, skipped)
        window, self._sent_ts = SentWindow(self._sent_ts, until.commit_ts), until.low_ts
        return Transaction(rows, marks, self._planned, window)

    # ---- tables that have stopped

    @property
    def stopped(self) -> tuple[StoppedTable, ...]:
        """The tables that have stopped. Call this after `opened`."""
        assert self._planned is not None
        return self._planned.stopped

    @property
    def catching(self) -> tuple[StoppedTable, ...]:
        """The stopped tables that catch up, because events of theirs are missing in the sink. A table that had stopped
        before the sink was opened is retried. A table that has stopped again since then catches up only to the position
        at which it stopped."""
        return tuple(one for one in self.stopped if one.lacks)

    @property
    def stops_unstored(self) -> bool:
        """Whether a table has stopped, but the progress in the sink does not show it yet."""
        return self._acked is None or self.stopped != self._acked.stopped

    def stop(self, name: Name, at: Position, reason: str, *, left: bool, stage: HeldStage = "encode") -> None:
        """Stop a table after the position `at`, or after the position up to which its events were sent already, if that
        is later. No later event of the table is sent until a sink is opened again. `left`: the user has chosen to leave
        the table behind. `stage`: where its event was refused. The next transaction stores the stop in the sink."""
        assert self._planned is not None
        sent = [one.at for one in self.catching if one.touches(name)]
        limit = max(at, min(sent, default=self.at))
        one = StoppedTable(name, min(sent, default=limit), reason, left, limit, stage)
        self._planned = replace(self._planned, stopped=replaced(self._planned.stopped, one))

    def adopt(self, name: Name, at: Position, other: StoppedTable) -> None:
        """Stop a table after the position `at`, up to which its events were sent, because `other` has stopped in
        another shard."""
        assert self._planned is not None
        one = replace(other, name=name, at=at, limit=at)
        self._planned = replace(self._planned, stopped=replaced(self._planned.stopped, one))

    def catch_up(
        self, rows: Payload, events: int, marks: tuple[Mark, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """Make the transaction for one window of messages of the tables that catch up. Moves their positions to
        `until`, and not the shard's."""
        planned = self._planned
        assert planned is not None
        moved = planned.moved(planned.at, rows, marks, events, None, skipped)
        after_ts = min((one.at.low_ts for one in self.catching), default=until.low_ts)
        self._planned = moved.caught_up(until)
        return Transaction(rows, marks, self._planned, SentWindow(after_ts, until.commit_ts, late=True))

    def passed(self, until: Position) -> None:
        """Move the position of the tables that catch up to `until`. The next transaction stores it in the sink."""
        assert self._planned is not None
        self._planned = self._planned.caught_up(until)

    @property
    def rejoined_ts(self) -> int | None:
        """The ts of the resolved message that is sent when the tables that catch up have reached the shard's position;
        None if no such message is due."""
        planned = self._planned
        assert planned is not None
        resolved = planned.at.place is Place.DONE and planned.at.commit_ts > planned.resolved_ts
        return planned.at.commit_ts if resolved and all(map(_rejoins, planned.holding)) else None

    def rejoin(self, marks: tuple[Mark, ...], ts: int | None) -> Transaction:
        """Make the transaction after which the tables that have caught up are sent with the others again. `marks` are
        resolved messages for `ts`, if it is not None."""
        planned = self._planned
        assert planned is not None
        moved = planned.moved(planned.at, NOTHING, marks, 0, ts)
        self._planned = replace(moved, stopped=tuple(one for one in planned.stopped if not _rejoins(one)))
        return Transaction(NOTHING, marks, self._planned)

    def acknowledged(self, transaction: Transaction, now_ms: int) -> None:
        """Record that the sink has made a transaction durable. Unless it is that of `opened`, this ends a
        failure. Sets `phase` to finished if all events up to the feed's end are in the sink. `now_ms`:
        monotonic."""
        before = self._acked
        self._acked = transaction.progress
        if before is not None:  # to open the sink proves nothing: the next message may fail again
            self.phase, self.failure, self.since_ms, self._failures = "running", None, None, 0
            self._refused_ms = None
        if before is not None and transaction.progress.rows > before.rows:
            self._pacing.sent_rows()
        if before is not None and transaction.progress.resolved_ts > before.resolved_ts:
            self._pacing.resolved_sent(now_ms)
        now = transaction.progress
        if not now.holding and now.load is None and not progress.within(now.at, self.order.end_ts):
            self.phase = "finished"

    def roll_back(self) -> None:
        """Go back to the progress that the sink has acknowledged, because it has refused a transaction and written
        nothing of it."""
        self._planned = self._acked
        assert self._acked is not None
        self._sent_ts = self._acked.at.low_ts

    # ---- failures

    def failed(self, failure: Failure, now_ms: int) -> None:
        """Record that a step failed. All that the sink has not acknowledged is forgotten, and the holder must open the
        sink again. Sets `phase` to retrying (then `retry_at_ms` is the time of the next attempt), failed or fenced.
        Credentials that are refused for REFUSED_MS make the feed fail. `now_ms`: monotonic."""
        self._planned = None
        if self.since_ms is None:
            self.since_ms = now_ms
        self.failure = failure
        if not failure.refused:
            self._refused_ms = None
        elif self._refused_ms is None:
            self._refused_ms = now_ms
        elif now_ms - self._refused_ms >= REFUSED_MS:
            failure = self.failure = replace(failure, kind="failed", reason=f"{failure.reason}; then resume the feed")
        if failure.kind == "retry":
            self._failures += 1
            self.retries += 1
            self.phase = "retrying"
            self.retry_at_ms = now_ms + back_off.pause_ms(self._failures, self._rng)
        else:
            self.phase = "failed" if failure.kind == "failed" else "fenced"

    def held_by(self) -> Iterator[HeldBy]:
        """The reasons why the shard does not advance, as entries of `held_by`."""
        if self.failure is not None:
            yield self.failure.held_by
        if self._acked is not None:
            yield from (one.held_by for one in self._acked.holding)
            if self._acked.load is not None:
                yield self._acked.load.held_by


def _rejoins(one: StoppedTable) -> bool:
    """Whether a table has caught up, so that it can continue with the others."""
    return one.limit is None and not one.left
