"""Decides what a backfill does next: which units of work (base chunks that one Spark task writes) are missing, and
whether the backfill has ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tistream.format.backfill.chunk_plan import ChunkPlan
from tistream.model.base_cover import Cover, Hole, base_ts_of
from tistream_ingest.backfill.chunk_units import ChunkUnit


@dataclass(frozen=True, slots=True)
class BackfillEnd:
    """The end of a backfill. If `reason` is None the backfill has finished: tasks have converted every chunk to a base
    run. Otherwise it has failed, or is `cancelled`, for this reason."""

    reason: str | None = None
    cancelled: bool = False

    @property
    def state(self) -> Literal["finished", "failed", "cancelled"]:
        if self.cancelled:
            return "cancelled"
        return "finished" if self.reason is None else "failed"


def missing_units(units: Sequence[ChunkUnit], there: Collection[int], count_max: int) -> list[ChunkUnit]:
    """The units that have a chunk which does not exist yet, in order, at most `count_max`. `there`: the numbers of the
    chunks that exist."""
    found = (unit for unit in units if any(number not in there for number, _ in unit.chunks))
    return [unit for unit, _ in zip(found, range(count_max), strict=False)]


def first_missing(there: Collection[int]) -> int:
    """The lowest number of a chunk that does not exist, given the numbers of those that do."""
    return next(number for number in range(len(there) + 1) if number not in there)


def ended(plan: ChunkPlan, there: Collection[int], refused: Mapping[int, str], cover: Cover) -> BackfillEnd | None:
    """The end of a backfill; None while chunks are still being written, or converted to base runs by tasks.

    `refused` has, by number, the reasons for which tasks refuse chunks. `cover` is the part of the keys that the
    tenant's base runs cover. A refused chunk ends the backfill once every other chunk is a base run: its table stays
    incomplete, and another backfill must read it again.
    """
    if len(there) < len(plan.spans):
        return None
    for number, span in enumerate(plan.spans):
        if number in refused:
            continue
        if isinstance(base_ts_of(cover, [span]), Hole):
            return None
    if refused:
        number, reason = min(refused.items())
        return BackfillEnd(
            f"{len(refused)} of {len(plan.spans)} chunks were refused; the first is {number}: {reason}; order a "
            "backfill of its table again, as of a newer ts"
        )
    return BackfillEnd()


def overdue(created_ms: int, now_ms: int, wait_ms: int) -> BackfillEnd | None:
    """The end of a backfill whose plan has not been pushed within `wait_ms` after it was requested; None before that
    time has passed. Until its plan is known, retention deletes nothing of the tenant (docs/adr/0030)."""
    if now_ms - created_ms < wait_ms:
        return None
    return BackfillEnd(
        f"no plan was pushed within {wait_ms} ms (TISTREAM_INGEST__PLAN_WAIT_MS), and retention waits for it: order "
        "the backfill again when its program runs",
        cancelled=True,
    )


def too_old(base_ts: int, snapshot_ts: int) -> str | None:
    """The reason why a backup as of `base_ts` cannot be used, because it is older than the tenant's snapshot; None if
    it can."""
    if base_ts >= snapshot_ts:
        return None
    return (
        f"the backup is as of {base_ts}, before the tenant's snapshot_ts {snapshot_ts}: the changes between them are "
        "in no log; take a new backup"
    )
