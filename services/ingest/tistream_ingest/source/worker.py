"""Runs one source (log backup) in a loop, and keeps its status, which any thread may read."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import FatalError, RetryableError
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.wire.bulk.sources import FlushedStore, SourceInfo, SourceRow, SourceStatus, State
from tistream.wire.sorter import Hold
from tistream_ingest.plan.checkpoint_state import flush_interval_ms, hold_of_checkpoint
from tistream_ingest.source.source import SourceRunner
from tistream_ingest.source.stopped import HEALS, SourceHeld, SourceStopped

log = logging.getLogger(__name__)

STOPPED_MS = 3_600_000  # a stopped source does nothing; its loop runs until the source is removed


class SourceWorker:
    """Runs the steps of one source. A background loop calls `step`. `poll_ms`: the pause after a step that made no
    release; `wait_ms`: the pause while the source waits for the pool. `released` is called after each release."""

    def __init__(
        self,
        row: SourceRow,
        source: SourceRunner,
        clock: Clock,
        poll_ms: int,
        wait_ms: int,
        released: Callable[[], None],
    ) -> None:
        self.row = row
        source.rows_wait = row.rows_wait
        self._source, self._clock, self._poll_ms, self._wait_ms = source, clock, poll_ms, wait_ms
        self._released = released
        self._lock = new_lock()
        self._state: State = "starting"
        self._hold: Hold | None = None

    def step(self) -> int:
        """Run one step of the source. Returns the pause until the next call, in ms. Raises RetryableError if a store
        did not answer, and FatalError if an object is damaged."""
        if self._state == "stopped":
            return STOPPED_MS
        try:
            made = self._source.step()
        except SourceHeld as held:
            self._note("waiting", Hold(stage=held.stage, object=held.object, reason=held.reason))
            return self._wait_ms if held.stage == "sort" else self._poll_ms
        except SourceStopped as error:
            return self._stop(str(error))
        except RetryableError as error:
            self._note("waiting", Hold(stage="push", reason=str(error)))
            raise
        except FatalError as error:  # a checkpoint, a metadata object or a record is damaged: it may be repaired
            named = getattr(error, "key", None)
            self._note("waiting", Hold(stage="damaged", object=named, reason=f"{error}; {HEALS}"))
            raise
        if made:
            self._released()
        seen = self._source.seen
        hold = hold_of_checkpoint(seen.checkpoint_ts, seen.checkpoint_since_ms, seen.flushes, self._clock.now_ms())
        self._note("running" if hold.object is None else "waiting", hold)
        return 0 if made else self._poll_ms

    def status(self) -> SourceStatus:
        """The status as of the last step."""
        seen = self._source.seen
        with self._lock:
            state, hold = self._state, self._hold
        interval = flush_interval_ms(seen.flushes)
        return SourceStatus(
            cluster_id=self.row.cluster_id,
            tenant_id=self.row.tenant_id,
            info=SourceInfo(
                source_id=self.row.source_id,
                kind=self.row.kind,
                state=state,
                checkpoint_ts=_text(seen.checkpoint_ts),
                released_ts=_text(seen.released_ts),
                flush_interval_s=None if interval is None else interval / 1000,
                stores=[
                    FlushedStore(store_id=str(store), newest_flush_ms=max(times, default=None))
                    for store, times in sorted(seen.flushes.items())
                ],
                safe_point_ts=_text(seen.safe_point_ts),
                reason=None if hold is None or state in ("starting", "running") else _reason(hold),
            ),
            hold=hold,
        )

    @property
    def lag_ms(self) -> int:
        """The age of the log's checkpoint; 0 before the first checkpoint was read."""
        ts = self._source.seen.checkpoint_ts
        return max(0, self._clock.now_ms() - physical_ms(ts)) if ts else 0

    def _stop(self, reason: str) -> int:
        log.error("source stopped", extra={"tenant": str(self.tenant), "source": self.row.source_id, "reason": reason})
        self._note("stopped", Hold(stage="push", object=self.row.url, reason=reason))
        return STOPPED_MS

    @property
    def tenant(self) -> TenantKey:
        return TenantKey(self.row.cluster_id, self.row.tenant_id)

    def _note(self, state: State, hold: Hold | None) -> None:
        with self._lock:
            self._state, self._hold = state, hold


def _reason(hold: Hold) -> str:
    """The reason of a hold, as text. The name of a damaged object is added, because the list of sources has no field
    for it."""
    if hold.stage != "damaged" or hold.object is None or hold.object in hold.reason:
        return hold.reason
    return f"{hold.object}: {hold.reason}"


def _text(ts: int) -> str | None:
    return str(ts) if ts else None
