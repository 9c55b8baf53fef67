"""Sends the events that a shard has read from the tenant's rows, segment by segment (up to a DDL). The state machine in
core/shard.py and the lanes in core/lanes.py decide."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tistream.clock import Clock
from tistream.errors import FatalError, RetryableError
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Place, Position
from tistream.read.scan import Budget
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name
from tistream.secrets.references import masked
from tistream.wire.bulk.changefeeds import HeldStage
from tistream_changefeed.core import barrier
from tistream_changefeed.core.failure import failed, retry
from tistream_changefeed.core.lanes import CatchUpLane, Lane, MainLane
from tistream_changefeed.core.outgoing import NOTHING, Payload
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.segments import Segment, segments, windows
from tistream_changefeed.core.shard import Shard, Transaction
from tistream_changefeed.core.stopped import STOPPED_MAX, StoppedTable
from tistream_changefeed.core.sync_points import SyncMark, passed
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.hold.sink import Encoded, Pipeline, Sink
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.shard_metrics import ShardTally
from tistream_changefeed.table_errors.table_failed import TableFailed
from tistream_changefeed.table_errors.tables_refused import TablesRefused

log = logging.getLogger(__name__)


BARRIER_LOOK_S = 0.05  # between two looks at the progress of the other shards
LOOK_MS = 5_000  # between two looks of a shard at which tables have stopped in the others


class HolderStopped(Exception):
    """Raised if the holder was asked to stop while it waited for other shards."""


@dataclass(slots=True)
class Sending:
    """Sends the segments of one shard into one open sink. `commit` writes a transaction. `secrets` are values that no
    error may show. `sent_ms` is the monotonic time at which rows or a DDL were last sent, or the sink was opened.
    `pause` waits for the given seconds, and returns whether the holder must stop. `late` are the other shards for which
    this one waits at a DDL."""

    shard: Shard
    sink: Sink
    pipeline: Pipeline
    clock: Clock
    window_bytes: int
    metrics: ChangefeedMetrics
    tally: ShardTally
    commit: Callable[[Transaction], None]
    secrets: tuple[str, ...]
    sent_ms: int
    pause: Callable[[float], bool]
    late: Sequence[int] = ()
    _passed: Position | None = None  # the newest DDL that every shard is known to have sent
    _refused: Position | None = None  # the end of the newest DDL that the sink has refused
    _looked_ms: int = field(init=False)  # monotonic, at the tables of the other shards

    def __post_init__(self) -> None:
        self._looked_ms = self.sent_ms

    def segment(self, lane: Lane, one: Segment, pool: Pool, *, last: bool) -> None:
        """Send the rows and the DDL of a segment that belong to `lane`, and move the lane's position behind
        them. `last`: its rows are the last ones that can be read now. Raises FeedFailed, TablesRefused, and
        HolderStopped."""
        self._rows(lane, one, last=last)
        lane.passed(one.rows_end)
        if one.ddl is not None and one.ddl_end is not None:
            self._ddl(lane, one.ddl, one.rows_end, one.ddl_end, pool)
            lane.passed(one.ddl_end)
        if (self.shard.stops_unstored or self._awaited(one)) and not self.shard.catching:
            self.commit(lane.send(NOTHING, 0, (), self.shard.at))

    def catch_up(self, pool: Pool, budget: Budget, stopping: Callable[[], bool]) -> None:
        """Retry the tables that have stopped: read and send their missing events, then let them continue with the
        others. `stopping` returns whether the work must end early."""
        shard = self.shard
        lane, scope = CatchUpLane(shard), ChosenScope(shard.order.tenant, choice=self.pipeline.tables)
        while shard.catching:
            at = min(one.at for one in shard.catching)
            behind = at if at.place is Place.DDL else None
            for batch in self.pipeline.scan(pool.source, scope, at, shard.at.commit_ts, budget).batches():
                for one in segments(batch.events, at, batch.through):
                    self._meet_behind(lane, behind)
                    at = one.rows_end if one.ddl_end is None else one.ddl_end
                    involved = () if one.ddl is None else self.pipeline.concerned(one.ddl)
                    waited = any(table.touches(name) for table in shard.catching for name in involved)
                    behind = one.ddl_end if waited else None
                    self.segment(lane, one, pool, last=False)
                if stopping():
                    return
                if not shard.catching:
                    break
            if shard.catching:
                self._meet_behind(lane, behind)
            if shard.catching:
                ts = shard.rejoined_ts
                marks = () if ts is None else self.pipeline.resolved(ts, self.sink.topics())
                names = [one.held_by.object for one in shard.catching]
                self.commit(shard.rejoin(marks, ts))
                log.info("tables go on", extra={"shard": shard.order.name, "tables": names})

    def sync(self) -> None:
        """If the shard is at a sync point, mark it in the sink and pass it. A feed with several shards waits for the
        others first. The point is passed without a mark if the sink does not have the state of exactly this ts: because
        a table has stopped, or because another shard has sent events above the point, which it may after an update of
        the interval."""
        points, at = self.pipeline.sync_points, self.shard.at
        if points is None or not points.due(at):
            return
        order, mark, after = self.shard.order, SyncMark(at.commit_ts), passed(at.commit_ts)
        if order.shards == 1:
            self.commit(self.shard.send(NOTHING, 0, () if self.shard.stopped else (mark,), after))
        else:
            others = self._meet(MainLane(self.shard), at)
            above = barrier.beyond(others, range(order.shards), order.shard, after)
            exact = not above and not self.shard.stopped and not any(one.stopped for one in others.values())
            self.commit(self.shard.send_ddl(self.pipeline.own((mark,) if exact else ()), after, 0))

    def look(self) -> None:
        """In a feed with several shards, stop the tables that have stopped in another shard before this one's position,
        if this one sends rows of them too. Looks into the sink every LOOK_MS, and waits for no shard. Called between
        two segments. Raises FeedFailed."""
        shared, now_ms = self.pipeline.shared, self.clock.monotonic_ms()
        if shared is None or now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        shard, order = self.shard, self.shard.order
        there = barrier.current(self.sink.shards(), order.fence, order.revision)
        found = barrier.stopped(there, range(order.shards), order.shard, shard.at)
        self._adopt(MainLane(shard), (one for one in found if shared(one.name)), shard.at)
        if shard.stops_unstored:
            self.commit(shard.send(NOTHING, 0, (), shard.at))

    def stop_refused(self, error: TablesRefused) -> None:
        """Stop tables of which the sink has refused a row or a DDL, after the position that it has acknowledged. The
        events of the other tables are read again from there. Raises FeedFailed."""
        self.shard.roll_back()
        for name in error.names:
            self._stop(name, Position(0), str(error), stage="sink")
        self.commit(self.shard.send(NOTHING, 0, (), self.shard.at))

    def _awaited(self, one: Segment) -> bool:
        """Whether the position behind the DDL of a segment must be committed now, because other shards may wait
        for it. That is so if the feed sends the DDL, but this shard has sent no copy of it, for example because
        the DDL waits for a stopped table."""
        if self.shard.order.shards == 1 or one.ddl is None or not self.shard.uncommitted:
            return False
        return bool(self.pipeline.concerned(one.ddl))

    def _meet(self, lane: Lane, until: Position) -> Mapping[int, Progress]:
        """Wait until every other shard of the feed has committed progress up to `until` (core/barrier.py), and stop the
        tables of `lane` that have stopped before it in another shard. Returns the progress of the shards. Raises
        HolderStopped."""
        shard, order = self.shard, self.shard.order
        if shard.uncommitted or shard.stops_unstored:  # the others wait for this one
            self.commit(shard.send(NOTHING, 0, (), shard.at))
        begun_ms, expected = self.clock.monotonic_ms(), range(order.shards)
        while True:
            found = self.sink.shards()
            self.late = barrier.behind(found, expected, order.shard, order.fence, order.revision, until)
            if not self.late:
                break
            if self.pause(BARRIER_LOOK_S):
                raise HolderStopped
        self.tally.barrier_seconds += (self.clock.monotonic_ms() - begun_ms) / 1000
        self._adopt(lane, barrier.stopped(found, expected, order.shard, until), until)
        return found

    def _adopt(self, lane: Lane, tables: Iterable[StoppedTable], at: Position) -> None:
        """Stop tables of `lane` that have stopped in another shard."""
        for one in tables:
            for name in lane.adopt(one, at):
                self._check_room(name, one.reason)
                log.error("a table has stopped in another shard", extra=self._fields(name, one.reason, left=one.left))

    def _meet_behind(self, lane: Lane, ddl_end: Position | None) -> None:
        """In a feed with several shards, wait until every shard has sent the DDL before the position `ddl_end`.
        Do nothing if `ddl_end` is None."""
        if self.shard.order.shards > 1 and ddl_end is not None:
            self._meet(lane, ddl_end)

    def _meet_behind_newest(self) -> None:
        """Wait until every shard has sent the newest DDL that this shard has sent. The caller then sends rows
        or another DDL."""
        before = self.shard.ddl
        if before is not None and before != self._passed:
            self._meet(MainLane(self.shard), before)
            self._passed = before

    # ---- rows

    def _rows(self, lane: Lane, segment: Segment, *, last: bool) -> None:
        if lane.resolves and len(lane.rows(segment.rows)):
            self._meet_behind_newest()
        begun_ms = self.clock.monotonic_ms()
        encoded = self._encoded(lane, segment)
        if encoded is None:
            return
        self.sent_ms = begun_ms
        messages, letters = encoded.messages, list(encoded.letters)
        self._count(messages, self.clock.monotonic_ms() - begun_ms)
        self.sink.keep(encoded.claims)
        for window in windows(messages.commit_ts, messages.sizes, self.window_bytes, segment.rows_end):
            part = messages.between(window.start, window.end)
            framed, tables = encoded.framed(part), part.fingerprints()
            whole = window.end == len(messages)
            until = window.until
            ts = self._resolved_ts_due(lane, until, reaches_end=last and whole)
            count = window.end - window.start
            due = [one for one in letters if whole or one.commit_ts <= until.commit_ts]
            letters = letters[len(due) :]
            left_out = tuple(one.sent for one in due)
            if ts is None:
                sent = lane.send(framed, count, left_out, until, len(due))
            else:
                marks = self.pipeline.resolved(ts, self.sink.topics())
                sent = self.shard.resolve(framed, count, left_out + marks, ts, until, len(due))
            self.commit(sent.with_fingerprints(tables))
        if letters:  # nothing else was sent
            left_out = tuple(one.sent for one in letters)
            self.commit(lane.send(NOTHING, 0, left_out, segment.rows_end, len(letters)))

    def _resolved_ts_due(self, lane: Lane, until: Position, *, reaches_end: bool) -> int | None:
        if not lane.resolves:
            return None
        return self.shard.resolved_ts_due(until, self.clock.monotonic_ms(), reaches_end=reaches_end)

    def _encoded(self, lane: Lane, segment: Segment) -> Encoded[Any] | None:
        """Encode a segment's rows that the lane sends. Tables that stop, because one of their rows cannot be sent, are
        left out."""
        while True:
            rows = lane.rows(segment.rows)
            if not len(rows):
                return None
            try:
                return self.pipeline.rows(rows, self.sink.partitions)
            except TableFailed as error:
                self._stop(error.name, Position(error.commit_ts - 1), str(error))
            except FatalError as error:
                raise failed("encode", self.shard.order.name, str(error)) from error
            except RetryableError as error:  # a schema registry that does not answer
                raise retry("encode", self.shard.order.name, str(error)) from error

    def _count(self, messages: Payload, took_ms: int) -> None:
        self.metrics.encode_seconds.observe(took_ms / 1000)
        self.tally.encode_seconds += took_ms / 1000
        self.tally.buffer_bytes = int(messages.sizes.sum())

    # ---- DDLs

    def _ddl(self, lane: Lane, event: DdlEvent, before: Position, end: Position, pool: Pool) -> None:
        names, several = self.pipeline.concerned(event), self.shard.order.shards > 1
        if not names or not lane.sends_ddl(names, end):
            return
        if several:
            if lane.resolves:
                self._meet_behind_newest()
            self._meet(lane, before)
        waits_for = lane.waits_for(names, end)
        if waits_for is not None:
            reason = f"DDL job {event.job_id} at commit_ts {event.commit_ts} waits for {waits_for.held_by.object}"
            self._wait(names, before, reason)
            return
        if end == self._refused:
            return  # its tables have stopped for it, and a person has chosen to leave them behind
        try:
            marks = self.pipeline.ddl(event, pool.source.table, self.sink.partitions)
        except FatalError as error:
            for name in names:
                self._stop(name, before, f"DDL job {event.job_id} at commit_ts {event.commit_ts}: {error}", "ddl")
            return
        except RetryableError as error:
            raise retry("ddl", self.shard.order.name, str(error)) from error
        if not marks:
            return
        self.sent_ms = self.clock.monotonic_ms()
        own = self.pipeline.own(marks) if several else marks
        skipped = self.pipeline.skipped(own)
        try:
            self.commit(lane.send_ddl(own, end, skipped) if several else lane.send(NOTHING, 0, own, end, skipped))
        except TablesRefused as error:
            self._refused = end if error.of_ddl else None
            raise

    def _wait(self, names: Sequence[Name], before: Position, reason: str) -> None:
        """Stop all tables that a DDL concerns, because the DDL must wait for one of them that has stopped already.
        `before`: the position before the DDL."""
        waiting = [one for one in self.shard.stopped if one.limit is not None and not one.left]
        for name in names:
            if not any(one.name == name for one in waiting):
                self._note(name, before, reason, left=False, stage="ddl")

    def _stop(self, name: Name, before: Position, reason: str, stage: HeldStage = "encode") -> None:
        """Stop a table after the position `before`, if the configuration says that errors stop tables. Otherwise raises
        FeedFailed, which stops the feed. The other shards of a feed stop the table where they meet next, or at their
        next `look`."""
        choice = self.pipeline.errors.on_table_error(name)
        if choice == "stop-feed":
            raise failed(stage, ".".join(name), reason)
        self._note(name, before, reason, left=choice == "leave-table", stage=stage)

    def _note(self, name: Name, at: Position, reason: str, *, left: bool, stage: HeldStage) -> None:
        shown = masked(reason, self.secrets)
        self.shard.stop(name, at, shown, left=left, stage=stage)
        self._check_room(name, shown)
        log.error("a table has stopped", extra=self._fields(name, shown, left=left))

    def _check_room(self, name: Name, reason: str) -> None:
        count = len(self.shard.stopped) - 1
        if count >= STOPPED_MAX:
            raise failed("encode", ".".join(name), f"{count} tables have stopped before it: {reason}")

    def _fields(self, name: Name, reason: str, *, left: bool) -> dict[str, object]:
        return {"shard": self.shard.order.name, "table": ".".join(name), "error": reason, "left": left}
