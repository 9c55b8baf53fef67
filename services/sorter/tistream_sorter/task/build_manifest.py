"""Builds a manifest from a task's state. A manifest contains the whole state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tistream.format.manifest import KIND_CHECKPOINT, KIND_SEAL, KIND_TICK, Manifest
from tistream.format.segment import SegmentRef
from tistream.model.span import KeySpan
from tistream_sorter.state.intake import counted
from tistream_sorter.state.positions import without_closed
from tistream_sorter.state.task_state import TaskState, after_manifest
from tistream_sorter.upkeep.retention import retained


def manifest_of(
    state: TaskState,
    low_ts: int,
    segments: tuple[SegmentRef, ...],
    nonce: str,
    now_ms: int,
    children: Sequence[tuple[int, KeySpan]] = (),
) -> tuple[Manifest, TaskState]:
    """Build the next manifest of a task from `state`. Returns it, and the state after its commit.

    `segments` are the new segments, with the rows of the window (low_ts, state.flushed_ts]; `state` has them in its
    live segments already. `now_ms`: wall clock. A checkpoint manifest lists all live segments, and applies retention.
    These manifests are checkpoints: the first of a child task, a seal (which names `children`), one of a state with
    `restate`, and every `checkpoint_every`-th.
    """
    identity, number = state.identity, state.number + 1
    due = number - state.checkpoint >= identity.checkpoint_every
    checkpoint = due or state.inherited or state.restate or bool(children)
    had_index = bool(state.index)  # an index that ends must be restated as empty
    if checkpoint:
        state = retained(state, now_ms)
    state = replace(state, positions=without_closed(state.positions, state.flushed_ts))
    state = counted(state, now_ms)
    slices, waiting = state.slices.to_tables()
    newest = number if checkpoint else state.checkpoint
    after = replace(state, number=number, checkpoint=newest, written_ms=now_ms, inherited=False, restate=False)
    manifest = Manifest(
        tenant=identity.tenant,
        task_id=identity.task_id,
        number=number,
        task_epoch=identity.task_epoch,
        nonce=nonce,
        kind=KIND_SEAL if children else KIND_CHECKPOINT if checkpoint else KIND_TICK,
        span=identity.span,
        low_ts=low_ts,
        flushed_ts=state.flushed_ts,
        segments=segments,
        live_segments=state.live_segments if checkpoint else None,
        cover=state.cover if checkpoint else None,
        pending=state.pending,
        positions=state.positions,
        counters=state.counters,
        checkpoint=after.checkpoint,
        children=tuple(children),
        stop_at=state.stop_at,
        merge=state.merge,
        retained_ts=state.retained_ts,
        schema_retained_ts=state.schema_retained_ts,
        heritage=state.heritage,
        written_ms=now_ms,
        intake=state.intake,
        index=state.index if checkpoint and (state.index or had_index) else None,
        slices=slices,
        waiting=waiting,
    )
    return manifest, after_manifest(after)
