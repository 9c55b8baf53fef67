"""Builds the status of a task: its progress, and the holds of its watermark, which say why it does not advance.
Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.format.manifest import PendingPart
from tistream.model.span import KeySpan, shown_key
from tistream.model.ts import physical_ms
from tistream.storage import layout
from tistream.wire.file_batch import FileRef
from tistream.wire.sorter import Chain, Coverage, Hold, SliceStatus, StoreNeed, TaskStatus
from tistream_sorter.state.positions import Positions
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.watermark.slice_arrays import NO_REGION, NO_STORE
from tistream_sorter.watermark.slices import SliceState

WAITING_TOLD = 3
LATE_MS = 5_000  # design.md 6: a watermark that is older than this must have a hold that explains it


def task_status(
    state: TaskState, durable: TaskState, received: Positions, holds: list[Hold], stopped: str | None
) -> TaskStatus:
    """Build the status of one task, as the HTTP answer has it. `durable`: the state in the task's newest manifest;
    before its first manifest, the state from its parents' seals. `received`: the positions after all queued files.
    `stopped`: the reason if the task has stopped."""
    identity = state.identity
    return TaskStatus(
        cluster_id=identity.tenant.cluster_id,
        tenant_id=identity.tenant.tenant_id,
        task_id=identity.task_id,
        task_epoch=identity.task_epoch,
        start_key=identity.span.start.hex(),
        end_key=identity.span.end.hex(),
        manifest=state.number,
        checkpoint=state.checkpoint,
        flushed_ts=state.flushed_ts,
        progress_ts=state.reported_ts,
        received=chains(received),
        durable=chains(durable.positions),
        pending_rows=sum(part.rows for part in state.pending),
        pending_bytes=sum(part.size for part in state.pending),
        counters=state.counters,
        holds=holds,
        stopped=stopped,
        retained_ts=state.retained_ts,
        pointed=None if durable.inherited else pointed(durable.pending),
    )


def pointed(parts: Iterable[PendingPart]) -> dict[int, int]:
    """For each store, the ts of the oldest change file whose values the pending parts still use."""
    oldest: dict[int, int] = {}
    for key in {source.key for part in parts for source in part.sources}:
        found = layout.parse_change_file(key)
        if found is not None:  # only change files need it, because other objects are collected in another way
            _, store, ts = found
            oldest[store] = min(ts, oldest.get(store, ts))
    return oldest


def log_fields(state: TaskState) -> dict[str, object]:
    """The fields that each log record about a task has: its identity and progress."""
    identity = state.identity
    return {
        "tenant": str(identity.tenant),
        "task_id": identity.task_id,
        "task_epoch": identity.task_epoch,
        "manifest": state.number,
        "flushed_ts": str(state.flushed_ts),
    }


def chains(positions: Positions) -> dict[int, list[Chain]]:
    """Convert positions to the form of HTTP messages."""
    return {
        store: [Chain(first_ts=chain.first_ts, at_ts=chain.at_ts) for chain in chains]
        for store, chains in positions.items()
    }


def is_late(state: TaskState, now_ms: int) -> bool:
    """Whether the watermark is older than LATE_MS, so that a hold must explain it. `now_ms`: wall clock."""
    return now_ms - physical_ms(state.slices.watermark()) > LATE_MS


def slice_holds(state: TaskState, now_ms: int) -> list[Hold]:
    """The holds (see glossary) for at most WAITING_TOLD watermark rows that wait, those of the slowest slices. If the
    watermark is above the ts at which the task stops for a merge, and that ts is older than LATE_MS, also a hold that
    says so. If the watermark is older than LATE_MS, also one for the slice that is furthest behind. `now_ms`: wall
    clock."""
    slices = state.slices
    tenant = state.identity.tenant
    holds = [
        Hold(
            stage="push",
            store_id=str(row.store_id),
            region_id=str(row.region_id),
            object=layout.change_file(tenant, row.store_id, row.file_ts),
            reason=f"region {row.region_id} of this file waits for {slices.waits_for(row)}",
        )
        for row in slices.slowest_waiting(WAITING_TOLD)
    ]
    stop_at = state.stop_at
    if stop_at is not None and slices.watermark() > stop_at and now_ms - physical_ms(stop_at) > LATE_MS:
        task_id = state.identity.task_id
        others = [] if state.merge is None else [one for one in state.merge.parents if one != task_id]
        whom = f"tasks {others}" if others else "others"
        holds.append(Hold(stage="sort", reason=f"task {task_id} stops at {stop_at}: it will be merged with {whom}"))
    if is_late(state, now_ms):
        lowest = slices.lowest()
        region = None if lowest.region_id == NO_REGION else str(lowest.region_id)
        store = None if lowest.store_id == NO_STORE else str(lowest.store_id)
        what = "no region has reported" if region is None else f"region {region} has reported nothing newer"
        reason = f"{what} for the keys from {shown_key(lowest.start) or 'the first'} since {lowest.resolved_ts}"
        holds.append(Hold(stage="push", store_id=store, region_id=region, reason=reason))
    return holds


def no_room(ref: FileRef, received: Positions) -> Hold:
    """The hold of a chain that cannot begin, because its store has too many open chains."""
    chains = received[ref.store_id]
    reason = (
        f"chain {ref.chain_ts} of store {ref.store_id} cannot begin: {len(chains)} of its chains are open, the oldest "
        f"since {chains[0].first_ts}; it begins after their late files have arrived, or their keys were scanned again"
    )
    return Hold(stage="push", store_id=str(ref.store_id), object=ref.key, reason=reason)


def store_need(state: TaskState, durable: TaskState, received: Positions, store_id: int) -> StoreNeed:
    """What the task still needs from a store. The result has the positions of the store's chains after all queued files
    (`received`) and in the newest manifest, the ts of the oldest file whose values pending rows use, and the first
    slice and the first waiting watermark row that depend on the store. `state` includes files that no manifest covers
    yet; `durable` is the state of the newest manifest."""
    slices = state.slices
    resting, row = slices.resting_on(store_id)
    return StoreNeed(
        received=chains(received).get(store_id, []),
        durable=chains(durable.positions).get(store_id, []),
        known=not durable.inherited,
        pointed=pointed(durable.pending).get(store_id),
        resting=None if resting is None else _slice_status(resting, None),
        waits=None
        if row is None
        else f"region {row.region_id} of file {row.file_ts} waits for {slices.waits_for(row)}",
    )


def _slice_status(piece: SliceState, waits_for: str | None) -> SliceStatus:
    return SliceStatus(
        start_key=piece.start.hex(),
        end_key=piece.end.hex(),
        region_id=None if piece.region_id == NO_REGION else str(piece.region_id),
        region_version=str(piece.region_version),
        index=str(piece.index),
        resolved_ts=str(piece.resolved_ts),
        waits_for=waits_for,
    )


def coverage(state: TaskState, only: KeySpan) -> Coverage:
    """The slices that overlap the span `only`, clipped to it, in key order."""
    clipped = state.identity.span.clip(only)
    if clipped is None:
        return Coverage(slices=[])
    slices = state.slices
    pieces = slices.states(clipped)
    out = []
    for piece, row in zip(pieces, slices.first_waiting(pieces), strict=True):
        waits_for = None if row is None else slices.waits_for(row.clipped(piece.start, piece.end))
        out.append(_slice_status(piece, waits_for))
    return Coverage(slices=out)
