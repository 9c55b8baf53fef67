"""Decides which committed segments a task keeps, and which are past retention (docs/adr/0009). Pure; `now_ms` is wall
clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from tistream.format.run import indexed_ts
from tistream.model.ts import from_physical_ms, physical_ms
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.upkeep.version_index import index_of


@dataclass(slots=True)
class ReadableTs:
    """Tracks the highest ts that has been durable for at least `pause_ms`, so that readers had time to read up to it.
    After a stall, hours of changes may be flushed at once. Without the pause they would be past retention before any
    consumer could read them. Times are monotonic ms."""

    pause_ms: int
    _flushed: deque[tuple[int, int]] = field(
        default_factory=deque
    )  # (when it was first seen to be durable, flushed_ts)

    def through(self, flushed_ts: int, now_ms: int) -> int:
        """Record that `flushed_ts` is durable now. Returns the highest ts that has been durable for `pause_ms`; 0 if
        there is no such ts."""
        if not self._flushed or flushed_ts > self._flushed[-1][1]:
            self._flushed.append((now_ms, flushed_ts))
        while len(self._flushed) > 1 and now_ms - self._flushed[1][0] >= self.pause_ms:
            self._flushed.popleft()
        since_ms, reached = self._flushed[0]
        return reached if now_ms - since_ms >= self.pause_ms else 0


def retained(state: TaskState, now_ms: int) -> TaskState:
    """Apply retention: raise retained_ts, and drop the segments whose rows all lie at or below it. Returns the new
    state. retained_ts never goes down.

    After a merge, a parent without schema keys may have dropped more rows than the schema registry has read. Readers
    see this in retained_ts; the segments stay until the registry has read them (schema_retained_ts). With a version
    index, segments stay until its runs have their rows. The index begins before retained_ts rises for the first time,
    so that it misses no row. If this holder has no version index, an index that an earlier holder made cannot be
    extended once rows above it are dropped. It is then removed, and the rows of backfills with it.
    """
    ts = max(state.retained_ts, _allowed(state, now_ms))
    schema_ts = max(state.schema_retained_ts, min(ts, state.retention.read_ts))
    index, cover = state.index, state.cover
    if state.retention.indexed and ts > state.retained_ts:
        index = index_of(state)
    drop_ts = min(schema_ts, indexed_ts(index)) if state.retention.indexed else schema_ts
    live = tuple(segment for segment in state.live_segments if segment.commit_ts_max > drop_ts)
    unchanged = (ts, schema_ts) == (state.retained_ts, state.schema_retained_ts)
    if unchanged and len(live) == len(state.live_segments):
        return state
    if index and any(indexed_ts(index) < one.commit_ts_max <= drop_ts for one in state.live_segments):
        index, cover = (), ()
    return replace(state, retained_ts=ts, schema_retained_ts=schema_ts, live_segments=live, index=index, cover=cover)


def _allowed(state: TaskState, now_ms: int) -> int:
    """The ts up to which rows may be dropped. The age of rows is counted from the earlier of two clocks, this node's
    and the upstream's, because a clock that is years ahead must not empty the pool."""
    keep_ms = state.retention.keep_ms
    newest_ms = min(now_ms, physical_ms(state.flushed_ts))
    if keep_ms is None or newest_ms <= keep_ms:
        return 0
    return min(state.flushed_ts, state.retention.read_ts, from_physical_ms(newest_ms - keep_ms))
