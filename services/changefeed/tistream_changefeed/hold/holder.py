"""Runs one shard of a feed: reads the tenant's committed rows, encodes them, writes to the sink. The state machine in
core/shard.py decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tistream.clock import Clock
from tistream.concurrency import Event, new_event
from tistream.errors import CorruptObject, Gone, RetryableError, UnknownName
from tistream.model.ts import Window
from tistream.pool.versions.reader import Reader
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Scope
from tistream.read.events import Rows
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget
from tistream.read.source_contract import Batch
from tistream.schema.visible import TableVersion
from tistream.secrets.references import masked
from tistream.wire.bulk.changefeeds import FeedReport, FeedShard, HeldBy
from tistream_changefeed.core.failure import FeedFailed, failed, retry
from tistream_changefeed.core.lanes import MainLane
from tistream_changefeed.core.outgoing import NOTHING, Payload
from tistream_changefeed.core.segments import segments
from tistream_changefeed.core.shard import Shard, Transaction
from tistream_changefeed.hold.loading import Loading, check_complete, rows_of, unfiltered
from tistream_changefeed.hold.new_rows import NewRows
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.hold.quota import QuotaPause, unlimited
from tistream_changefeed.hold.sending import HolderStopped, Sending
from tistream_changefeed.hold.sink import Pipeline, ReadsAgain, Sink
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.shard_metrics import ShardTally
from tistream_changefeed.table_errors.table_failed import TableFailed
from tistream_changefeed.table_errors.tables_refused import TablesRefused

log = logging.getLogger(__name__)

WAIT_MS = 1_000  # at most, between two looks at the pool of a shard that is at work
IDLE_MS = 3_000  # a shard that has sent nothing for so long rests
PAUSE_MS = 500  # at least, between two steps of a shard that rests, unless rows come
FOREVER_MS = 1 << 62
ENDED = ("failed", "finished", "fenced")


class IdleUntil(NamedTuple):
    """Says until when an idle shard needs no thread. `until_ms`: monotonic. `at_ts`: the ts up to which it has read; it
    continues before `until_ms` if the tenant has new rows or DDLs above `at_ts` that concern it. None: only the time
    counts. `unstored`: the sink has not stored yet how far the shard has come, so it continues at `until_ms` even if
    the tenant stands still."""

    until_ms: int
    at_ts: int | None = None
    unstored: bool = False


@dataclass(slots=True, eq=False)
class Holder:
    """Runs one shard in this process. `run` is the main function of a thread. Other threads call `report` and
    `stop`. `is_due` is for the thread that decides when `run` is called again. `window_bytes`: the size that one
    transaction should have. `charge` counts the row events and bytes of a transaction against the tenant's quotas.
    `view` returns the tenant's pool as it is now. `new_sink` makes a sink that is not open yet; it is called at the
    beginning and after each failure."""

    shard: Shard
    view: Callable[[], Pool]
    new_sink: Callable[[], Sink]
    pipeline: Pipeline
    clock: Clock
    budget: Budget
    window_bytes: int
    metrics: ChangefeedMetrics
    secrets: tuple[str, ...] = field(default=(), repr=False)  # values that no error may show
    tally: ShardTally = field(default_factory=ShardTally)
    charge: Callable[[int, int], QuotaPause | None] = unlimited
    reader: Reader | None = None  # of the rows with which a feed begins
    _slowed: QuotaPause | None = None
    _sink: Sink | None = None
    _sending: Sending | None = None
    _resolved_ts: int = 0
    _stopping: Event = field(default_factory=new_event)
    _scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        self._scope = ChosenScope(self.shard.order.tenant, choice=self.pipeline.tables)

    def run(self) -> IdleUntil | None:
        """Work until the shard is idle. Returns an IdleUntil, which says for how long. Returns None if the holder was
        asked to end; then it has closed its sink."""
        while not self._stopping.is_set():
            rest = self.step()
            if rest is not None:
                return rest
        self._leave()
        return None

    def is_due(self, rest: IdleUntil, now_ms: int, fresh: NewRows | None) -> bool:
        """Whether this idle shard has something to do. `rest` is what `run` returned. `now_ms`: monotonic. `fresh`: the
        new rows of its tenant; None if they could not be read."""
        if rest.at_ts is None or fresh is None:
            return now_ms >= rest.until_ms
        low, high = fresh.window.low, fresh.window.high
        self._resolved_ts = max(self._resolved_ts, high)
        if high <= rest.at_ts:
            return rest.unstored and now_ms >= rest.until_ms
        ends = high != self._high(high)
        return ends or rest.at_ts < low or now_ms >= rest.until_ms or fresh.concerns(self._scope)

    @property
    def stopping(self) -> bool:
        """Whether the holder was asked to end."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the holder to end. Returns at once. The sink commits or aborts a transaction that is in progress."""
        self._stopping.set()

    def report(self) -> FeedReport:
        """The report of the shard for the heartbeat to the meta server."""
        order, acked, failure = self.shard.order, self.shard.acked, self.shard.failure
        since_ms = self.shard.since_ms
        return FeedReport(
            shard=FeedShard(
                cluster_id=order.tenant.cluster_id,
                tenant_id=order.tenant.tenant_id,
                changefeed_id=order.feed_id,
                shard=order.shard,
                generation=order.fence.generation,
            ),
            epoch=order.fence.epoch,
            phase=self.shard.phase,
            checkpoint_ts=None if acked is None else acked.checkpoint_ts,
            resolved_ts=self._resolved_ts,
            reached_ts=None if acked is None else acked.at.commit_ts,
            rows=0 if acked is None else acked.rows,
            bytes=0 if acked is None else acked.bytes,
            retries=self.shard.retries,
            since_ms=None if since_ms is None else self.clock.now_ms() - (self.clock.monotonic_ms() - since_ms),
            held_by=[*self.shard.held_by(), *self._held_by_others()],
            error=None if failure is None else f"{failure.object}: {failure.reason}",
            applied=None if acked is None else acked.applied,
            skipped=0 if acked is None else acked.skipped,
            stopped=[] if acked is None else [one.info for one in acked.stopped],
        )

    def step(self) -> IdleUntil | None:
        """Open the sink if it is closed, and send what can be read now. A failure is recorded in the shard. Returns an
        IdleUntil if the shard is idle then, or None if the next step follows at once."""
        now_ms = self.clock.monotonic_ms()
        if self.shard.phase in ENDED:
            self._leave()
            return IdleUntil(FOREVER_MS)
        if self.shard.phase == "retrying" and now_ms < self.shard.retry_at_ms:
            return IdleUntil(self.shard.retry_at_ms)
        tenant = str(self.shard.order.tenant)
        try:
            self._open()
            return self._advanced()
        except FeedFailed as error:
            self._failed(error)
        except Gone as error:
            self._failed(failed("pool", tenant, f"{error}: resume the feed with a checkpoint_ts that is kept"))
        except CorruptObject as error:
            self._failed(failed("pool", tenant, str(error)))
        except (RetryableError, UnknownName) as error:  # routes may not name a new tenant yet
            self._failed(retry("pool", tenant, str(error)))
        except HolderStopped:
            return None
        except Exception as error:
            log.exception("a feed's step failed", extra={"shard": self.shard.order.name})
            self._failed(retry("encode", tenant, f"{type(error).__name__}: {error}"))
        return None

    def _held_by_others(self) -> Iterator[HeldBy]:
        if (slowed := self._slowed) is not None:
            yield slowed.held_by
        if (sink := self._sink) is not None and (held := sink.held_by) is not None:
            yield held
        for late in () if self._sending is None else self._sending.late:
            reason = "it has not come to the DDL that the others wait at: its worker, or its partitions, say why"
            yield HeldBy(stage="ddl", object=f"shard {late}", reason=reason)

    # ---- steps

    def _open(self) -> None:
        if self._sink is not None:
            return
        view = self.view()
        view.wait_fresh()
        view.check_known()
        self._sink = sink = self.new_sink()
        self._sending = Sending(
            self.shard,
            sink,
            self.pipeline,
            self.clock,
            self.window_bytes,
            self.metrics,
            self.tally,
            self._commit,
            self.secrets,
            self.clock.monotonic_ms(),
            self._stopping.wait,
        )
        if isinstance(sink, ReadsAgain):
            sink.reads_again(self._rows_again)
        found, ends = sink.open()
        transaction = self.shard.opened(found, ends, sink.where, loads=self.pipeline.first_rows is not None)
        if self.shard.grown_ts is not None:
            marks = self.pipeline.grown(self.shard.grown_ts, transaction.progress.resolved_ts, sink.topics())
            transaction = self.shard.announce(marks)
        view.check_served(transaction.progress.checkpoint_ts)
        self._commit(transaction)
        scope = Scope(self.shard.order.tenant)
        begun = self.pipeline.opened(self.shard.at.low_ts, lambda ts: view.source.tables_at(ts, scope), sink.partitions)
        for marks in map(self.pipeline.own, begun):
            self._commit(self.shard.send(NOTHING, 0, marks, self.shard.at))
        log.info("shard opened", extra={"shard": self.shard.order.name, "checkpoint_ts": self.shard.at.low_ts,
                                        "epoch": self.shard.order.fence.epoch, "new": found is None})  # fmt: skip

    def _rows_again(
        self, version: TableVersion, window: Window, ids: Collection[int] | None = None, *, gone: bool = False
    ) -> Iterator[Payload]:
        """Read rows of a table again (implements RowsOf)."""
        view, sink = self.view(), self._sink
        assert sink is not None
        assert self.reader is not None
        if self.pipeline.first_rows is not None and not gone:
            check_complete(view, [version], window.high)
        for events, _ in rows_of(view, self.reader, version, window, self.window_bytes, ids=ids):
            try:
                yield unfiltered(events) if gone else self.pipeline.rows(events, sink.partitions).messages
            except TableFailed as error:
                raise failed("encode", ".".join(error.name), str(error)) from error

    def _advanced(self) -> IdleUntil | None:
        try:
            return self._advance()
        except TablesRefused as error:
            assert self._sending is not None
            self._sending.stop_refused(error)
            return None

    def _advance(self) -> IdleUntil | None:
        """Send what can be read now. Then return until when the shard is idle; or wait a moment for new rows, and
        return None, if rows were sent lately."""
        view, shard, sending = self.view(), self.shard, self._sending
        assert sending is not None
        if shard.loading is not None:
            assert self.reader is not None
            Loading(sending, self.reader).run(view, self._stopping.is_set)
            return None
        if shard.catching:
            sending.catch_up(view, self.budget, self._stopping.is_set)
            if shard.catching:  # the holder was asked to stop
                return None
        self._resolved_ts = view.resolved_ts()
        sending.look()
        sending.sync()
        high = self._high(self._resolved_ts)
        if shard.at.low_ts < high:
            for batch in self.pipeline.scan(view.source, self._scope, shard.at, high, self.budget).batches():
                self._send(sending, view, batch, high)
                sending.look()
                if batch.barrier is not None:
                    view.record_barrier(batch.barrier)
                    raise _undecodable(batch.barrier)
                if self._stopping.is_set():
                    return None
        now_ms = self.clock.monotonic_ms()
        self._resolve(now_ms)
        if now_ms - sending.sent_ms > IDLE_MS and not sending.sink.waits:
            until_ms = now_ms + max(PAUSE_MS, shard.due_in_ms(now_ms))
            unstored = shard.resolved_unstored or shard.resolved_unsent
            return IdleUntil(until_ms, max(high, shard.at.low_ts), unstored)
        least_ms = PAUSE_MS if shard.resolved_unstored else 1  # it stays due until the sink has stored it
        view.wait_above(max(high, shard.at.low_ts), max(least_ms, min(WAIT_MS, shard.due_in_ms(now_ms))))
        return None

    def _high(self, resolved_ts: int) -> int:
        """The ts up to which events may be sent now: at most the next sync point."""
        high, points = self.shard.high(resolved_ts), self.pipeline.sync_points
        return high if points is None else min(high, points.after(self.shard.at.low_ts))

    def _send(self, sending: Sending, view: Pool, batch: Batch, high: int) -> None:
        self.tally.undecoded += sum(one.undecoded for one in batch.events.sets if isinstance(one, Rows))
        found = list(segments(batch.events, self.shard.at, batch.through))
        for segment in found:
            last = segment is found[-1] and batch.through == high
            sending.segment(MainLane(self.shard), segment, view, last=last)

    def _resolve(self, now_ms: int) -> None:
        """Send a transaction that has only resolved messages, if they are due or the feed ends here; or one that offers
        the progress again, if the sink has not stored it."""
        sink, shard = self._sink, self.shard
        assert sink is not None
        ts = shard.resolved_ts_due(shard.at, now_ms, reaches_end=shard.at.commit_ts == shard.order.end_ts)
        if ts is not None:
            self._commit(shard.resolve(NOTHING, 0, self.pipeline.resolved(ts, sink.topics()), ts, shard.at))
        elif shard.end_unstored or shard.resolved_unstored or sink.waits:
            self._commit(shard.send(NOTHING, 0, (), shard.at))

    def _commit(self, transaction: Transaction) -> None:
        sink = self._sink
        assert sink is not None
        begun_ms = self.clock.monotonic_ms()
        try:
            if not sink.write(transaction):
                return
        except FeedFailed:
            self.tally.aborted += 1
            raise
        now_ms, before = self.clock.monotonic_ms(), self.shard.acked
        self.shard.acknowledged(transaction, now_ms)
        self._flushed(transaction, now_ms - begun_ms)
        if before is not None:
            now = transaction.progress
            self._slowed = slowed = self.charge(now.rows - before.rows, now.bytes - before.bytes)
            if slowed is not None:
                self._stopping.wait(slowed.wait_ms / 1000)

    # ---- what is counted

    def _flushed(self, transaction: Transaction, took_ms: int) -> None:
        rows, tally = transaction.rows, self.tally
        self.metrics.flush_seconds.observe(took_ms / 1000)
        tally.flush_seconds += took_ms / 1000
        tally.transactions += 1
        tally.messages += len(rows) + len(transaction.marks)
        if len(rows):
            tally.window_bytes = int(rows.sizes.sum())
            tally.buffer_bytes = max(0, tally.buffer_bytes - tally.window_bytes)
            self.metrics.window_bytes.observe(tally.window_bytes)

    def _failed(self, error: FeedFailed) -> None:
        failure = replace(error.failure, reason=masked(error.failure.reason, self.secrets))
        level = logging.ERROR if failure.kind == "failed" else logging.WARNING
        fields = {
            "shard": self.shard.order.name,
            "stage": failure.stage,
            "error": f"{failure.object}: {failure.reason}",
        }
        log.log(level, f"feed {failure.kind}", extra=fields)
        self.tally.failures[failure.stage, failure.cause] += 1
        self.tally.buffer_bytes = 0
        self.shard.failed(failure, self.clock.monotonic_ms())
        self._leave()

    def _leave(self) -> None:
        sink, self._sink = self._sink, None
        self._sending = None
        if sink is not None:
            sink.close()


def _undecodable(barrier: Barrier) -> FeedFailed:
    reason = f"a row at commit_ts {barrier.commit_ts} cannot be decoded: {barrier.reason}"
    return retry("pool", barrier.table or str(barrier.table_id), reason)
