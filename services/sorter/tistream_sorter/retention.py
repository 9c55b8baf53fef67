"""What a task keeps of what it has committed (docs/adr/0009). Pure; `now_ms` is wall clock."""

from __future__ import annotations

from dataclasses import replace

from tistream.model.ts import from_physical_ms, physical_ms
from tistream_sorter.task_state import TaskState


def retained(state: TaskState, now_ms: int) -> TaskState:
    """The state without the segments whose rows all lie at or below its new retained_ts, which never goes down.

    After a merge a parent without the schema's keys may have let go of more than the schema registry has read: that is
    told to readers (retained_ts), and the segments stay until it has (schema_retained_ts).
    """
    ts = max(state.retained_ts, _allowed(state, now_ms))
    schema_ts = max(state.schema_retained_ts, min(ts, state.retention.read_ts))
    live = tuple(segment for segment in state.live_segments if segment.commit_ts_max > schema_ts)
    unchanged = (ts, schema_ts) == (state.retained_ts, state.schema_retained_ts)
    if unchanged and len(live) == len(state.live_segments):
        return state
    return replace(state, retained_ts=ts, schema_retained_ts=schema_ts, live_segments=live)


def _allowed(state: TaskState, now_ms: int) -> int:
    """Age is counted from the older of two clocks, this node's and the upstream's: one that is years ahead, whichever
    it is, must not empty the pool."""
    keep_ms = state.retention.keep_ms
    newest_ms = min(now_ms, physical_ms(state.flushed_ts))
    if keep_ms is None or newest_ms <= keep_ms:
        return 0
    return min(state.flushed_ts, state.retention.read_ts, from_physical_ms(newest_ms - keep_ms))
