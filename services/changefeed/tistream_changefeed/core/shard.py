"""The machine of one shard: what a holder reads, sends and may report, without I/O. Pure.

A holder opens the sink (which fences the holder before it), calls `opened`, and writes the transaction that it gets
back, so that the sink knows the new fence before anything else happens. Then it reads events behind `at`, encodes them,
and writes one Transaction after the other. Only `acked` advances what is reported: the checkpoint is what the sink has
acknowledged (invariant 39). After any failure the holder opens the sink again and goes on from what the sink says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from tistream.model.ids import TenantKey
from tistream.read.cursor import Place, Position
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import HeldBy, Phase
from tistream_changefeed.core import back_off, progress
from tistream_changefeed.core.failure import Failure
from tistream_changefeed.core.outgoing import NOTHING, Outgoing, Sent
from tistream_changefeed.core.pacing import BUSY_MS, IDLE_MS, Pacing
from tistream_changefeed.core.progress import Fence, Progress, Revision
from tistream_changefeed.core.stopped import StoppedTable, replaced
from tistream_changefeed.protocols.messages import Message

REFUSED_MS = 600_000  # the feed fails after credentials were refused for so long


@dataclass(frozen=True, slots=True)
class Order:
    """A shard that the meta server has given to a holder. `start_ts`: where a sink without progress begins. `end_ts`,
    inclusive: the feed finishes there."""

    tenant: TenantKey
    feed_id: str
    shard: int
    fence: Fence
    start_ts: int
    end_ts: int | None = None
    revision: Revision = progress.FIRST
    shards: int = 1  # of the feed
    known_ts: int | None = None  # a checkpoint that the sink has acknowledged; None: the sink may be empty

    @property
    def name(self) -> str:
        """As logs and errors name it."""
        return f"{self.tenant}/{self.feed_id}/{self.shard}"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One atomic step of the sink: messages of rows, then `marks` (a DDL, resolved messages), then the progress."""

    rows: Outgoing
    marks: tuple[Sent, ...]
    progress: Progress


def to_partitions(message: Message, count: int, topic: str) -> tuple[Sent, ...]:
    """A message of a DDL for the `count` partitions of a topic: all of them, or the first alone if the protocol says
    so."""
    numbers = range(count) if message.every_partition else range(1)
    return tuple(Sent(topic, number, message.key, message.value) for number in numbers)


def everywhere(message: Message, topics: Mapping[str, int]) -> tuple[Sent, ...]:
    """A resolved message for every partition of every topic (invariant 42)."""
    return tuple(
        Sent(topic, number, message.key, message.value)
        for topic, count in sorted(topics.items())
        for number in range(count)
    )


class Shard:
    """The state of one holder of a shard. Times are of the monotonic clock, in ms."""

    def __init__(self, order: Order, rng: Random, resolved_every_ms: int = IDLE_MS) -> None:
        self.order = order
        self.phase: Phase = "running"
        self.failure: Failure | None = None
        self.since_ms: int | None = None  # of the failure
        self.retry_at_ms = 0
        self.retries = 0
        self._failures = 0  # in a row
        self._refused_ms: int | None = None  # since when the sink refuses the credentials
        self._rng = rng
        self._every_ms = resolved_every_ms
        self._pacing = Pacing(resolved_every_ms)
        self._acked: Progress | None = None
        self._planned: Progress | None = None

    @property
    def acked(self) -> Progress | None:
        """What the sink has acknowledged to this holder; None before it was opened."""
        return self._acked

    @property
    def at(self) -> Position:
        """Where to read on. Only after `opened`."""
        assert self._planned is not None
        return self._planned.at

    @property
    def uncommitted(self) -> bool:
        """Whether the sink does not know yet how far the shard has come."""
        return self._planned is not None and self._acked is not None and self._acked.at < self._planned.at

    @property
    def ddl(self) -> Position | None:
        """The position behind the newest DDL; None: of a feed with one shard, or before the first."""
        return None if self._planned is None else self._planned.ddl

    @property
    def ends_unsaid(self) -> bool:
        """Whether the shard has read up to its end, and the sink does not know it. After a replay no resolved message
        says it, because a higher one was sent before."""
        planned = self._planned
        return self.uncommitted and planned is not None and not progress.within(planned.at, self.order.end_ts)

    # ---- opening

    def opened(self, found: Progress | None, ends: Mapping[str, Mapping[int, int]], where: str) -> Transaction:
        """Take over what the sink has. `ends`: end offsets of the topics in `found`. Returns the transaction that
        raises the fence in the sink. Raises FeedFailed."""
        acked = None if self._acked is None else self._acked.checkpoint_ts
        known = [ts for ts in (self.order.known_ts, acked) if ts is not None]
        progress.check_there(found, self.order.fence, max(known, default=None), where)
        mine = progress.taken_over(found, self.order.fence, self.order.start_ts, where)
        mine = progress.revised(mine, self.order.revision, ends)
        progress.check_counts(mine, ends)
        progress.check_kept(mine, ends)
        self._planned = self._acked = None
        self._pacing = Pacing(self._every_ms)
        ahead = tuple(one for one in mine.stopped if one.left or one.at < mine.at)  # the others are met on the way
        self._planned = replace(mine, stopped=ahead)
        return Transaction(NOTHING, (), self._planned)

    # ---- sending

    def high(self, resolved_ts: int) -> int:
        """The ts up to which events may be sent now. `resolved_ts`: of the pool."""
        return resolved_ts if self.order.end_ts is None else min(resolved_ts, self.order.end_ts)

    def skip(self, until: Position) -> None:
        """Go on behind `until`: nothing before it is to be sent. The sink learns of it with the next transaction."""
        assert self._planned is not None
        planned = self._planned
        self._planned = planned.moved(max(planned.at, until), NOTHING, (), 0, None)

    def send(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """The transaction of a window: its messages, which hold `events` row events, then `marks`, of which `skipped`
        are letters of events that are left out."""
        return self._planning(rows, events, marks, until, None, skipped)

    def send_ddl(self, marks: tuple[Sent, ...], until: Position, skipped: int) -> Transaction:
        """The transaction of the copies of a DDL, which may be none, that one of several shards sends."""
        assert self._planned is not None
        self._planned = replace(self._planned, ddl=until)
        return self._planning(NOTHING, 0, marks, until, None, skipped)

    def resolved_ts_due(self, until: Position, now_ms: int, *, reaches_end: bool) -> int | None:
        """The ts of the resolved message that the transaction up to `until` ends with, or None. `reaches_end`: it holds
        the last of what can be read now, so readers need not wait for the next."""
        planned = self._planned
        if planned is None or until.place is not Place.DONE or until.commit_ts <= planned.resolved_ts:
            return None
        if any(one.at.low_ts < until.commit_ts for one in planned.holding):
            return None
        return until.commit_ts if reaches_end or self._pacing.due_in_ms(now_ms) == 0 else None

    def resolve(
        self, rows: Outgoing, events: int, message: tuple[Sent, ...], ts: int, until: Position, skipped: int = 0
    ) -> Transaction:
        """The transaction of a window that ends with a resolved message of `ts`."""
        return self._planning(rows, events, message, until, ts, skipped)

    def due_in_ms(self, now_ms: int) -> int:
        """Milliseconds until a resolved message is due. None can be sent while a table has stopped."""
        due_ms = self._pacing.due_in_ms(now_ms)
        return max(due_ms, BUSY_MS) if self._planned is not None and self._planned.holding else due_ms

    def _planning(
        self,
        rows: Outgoing,
        events: int,
        marks: tuple[Sent, ...],
        until: Position,
        resolved_ts: int | None,
        skipped: int,
    ) -> Transaction:
        planned = self._planned
        assert planned is not None
        assert until >= planned.at, f"{until} lies before {planned.at}"
        self._planned = planned.moved(until, rows, marks, events, resolved_ts, skipped)
        return Transaction(rows, marks, self._planned)

    # ---- tables that have stopped

    @property
    def stopped(self) -> tuple[StoppedTable, ...]:
        """The tables that have stopped. Only after `opened`."""
        assert self._planned is not None
        return self._planned.stopped

    @property
    def catching(self) -> tuple[StoppedTable, ...]:
        """Those of them that catch up, because the sink was opened since they have stopped."""
        return tuple(one for one in self.stopped if one.lacks)

    @property
    def stops_unsaid(self) -> bool:
        """Whether a table has stopped, and the sink does not know it."""
        return self._acked is None or self.stopped != self._acked.stopped

    def stop(self, name: Name, at: Position, reason: str, *, left: bool) -> None:
        """Send nothing more of a table behind `at`, or behind what was sent of it, until a sink is opened again. The
        sink learns of it with the next transaction."""
        assert self._planned is not None
        sent = [one.at for one in self.catching if one.touches(name)]
        limit = max(at, min(sent, default=self.at))
        one = StoppedTable(name, min(sent, default=limit), reason, left, limit)
        self._planned = replace(self._planned, stopped=replaced(self._planned.stopped, one))

    def catch_up(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """The transaction of a window of the tables that catch up. The shard stays where it is."""
        planned = self._planned
        assert planned is not None
        moved = planned.moved(planned.at, rows, marks, events, None, skipped)
        self._planned = moved.caught_up(until)
        return Transaction(rows, marks, self._planned)

    def passed(self, until: Position) -> None:
        """Go on behind `until` with the tables that catch up. The sink learns of it with the next transaction."""
        assert self._planned is not None
        self._planned = self._planned.caught_up(until)

    @property
    def rejoined_ts(self) -> int | None:
        """The ts of the resolved message that is due when the tables that catch up are where the shard is, or None."""
        planned = self._planned
        assert planned is not None
        resolved = planned.at.place is Place.DONE and planned.at.commit_ts > planned.resolved_ts
        return planned.at.commit_ts if resolved and all(map(_rejoins, planned.holding)) else None

    def rejoin(self, marks: tuple[Sent, ...], ts: int | None) -> Transaction:
        """The transaction with which the tables that catch up go on with the others, with a resolved message of
        `ts`."""
        planned = self._planned
        assert planned is not None
        moved = planned.moved(planned.at, NOTHING, marks, 0, ts)
        self._planned = replace(moved, stopped=tuple(one for one in planned.stopped if not _rejoins(one)))
        return Transaction(NOTHING, marks, self._planned)

    def acknowledged(self, transaction: Transaction, now_ms: int) -> None:
        """Note that the sink has made a transaction durable."""
        before = self._acked
        self._acked = transaction.progress
        if before is not None:  # to open the sink proves nothing: the next message may fail again
            self.phase, self.failure, self.since_ms, self._failures = "running", None, None, 0
            self._refused_ms = None
        if len(transaction.rows):
            self._pacing.sent_rows()
        if before is not None and transaction.progress.resolved_ts > before.resolved_ts:
            self._pacing.told(now_ms)
        if not transaction.progress.holding and not progress.within(transaction.progress.at, self.order.end_ts):
            self.phase = "finished"

    # ---- failures

    def failed(self, failure: Failure, now_ms: int) -> None:
        """Note that a step failed. What was not acknowledged is forgotten: the sink is opened again."""
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
        """What keeps the shard from advancing."""
        if self.failure is not None:
            yield self.failure.held_by
        if self._acked is not None:
            yield from (one.held_by for one in self._acked.holding)


def _rejoins(one: StoppedTable) -> bool:
    """Whether a table that caught up goes on with the others."""
    return one.limit is None and not one.left
