"""Which base chunks a task takes next, and why others wait or are refused (docs/backfill.md). Pure.

A chunk counts for each task that its span overlaps, clipped. The task's log must have every change above the chunk's
base_ts: so base_ts is at or above the tenant's snapshot_ts and the task's retained_ts, and it must have been flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from tistream.format.backfill.base_chunk import ChunkId
from tistream.format.backfill.chunk_plan import ChunkPlan, table_id_of
from tistream.model.base_cover import base_ts_of, clipped
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_sorter.jobs.base_unit import BaseMade, BaseUnit
from tistream_sorter.state.task_state import TaskState

NewNonce = Callable[[], str]

INDEXED_TS = 0  # no run holds logged versions: segments have them all


@dataclass(slots=True)
class OpenBackfill:
    """A backfill whose chunks are taken, as a sorter knows it: its plan, and the base_ts of each chunk that exists.

    `refused`: chunks that are damaged or contradict the log, with the reason.
    """

    tenant: TenantKey
    backfill_id: str
    plan: ChunkPlan
    base_ts: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    there: set[int] = field(default_factory=set)  # chunks that exist

    @property
    def complete(self) -> bool:
        """Whether every chunk of the plan exists."""
        return len(self.there) == len(self.plan.spans)

    @property
    def first_unknown(self) -> int:
        """The lowest chunk that is not known to exist."""
        return next(number for number in range(len(self.plan.spans) + 1) if number not in self.there)


def wanted(state: TaskState, backfill: OpenBackfill) -> list[int]:
    """The numbers of existing chunks that concern the task and are not in its basis yet, in order."""
    identity = state.identity
    return [
        number
        for number, base_ts in sorted(backfill.base_ts.items())
        if number not in backfill.refused
        and (part := backfill.plan.spans[number].clip(identity.span)) is not None
        and not _has(state, part, base_ts)
    ]


def refusal(state: TaskState, backfill: OpenBackfill, number: int) -> str | None:
    """Why the task never takes a chunk; None if it may."""
    base_ts, plan = backfill.base_ts[number], backfill.plan
    if base_ts < plan.min_ts:
        return f"is as of {base_ts}, below the min_ts {plan.min_ts} of its plan"
    if base_ts < state.begins_ts:
        begins = f"the log of task {state.identity.task_id} begins at {state.begins_ts}"
        return f"is as of {base_ts}, but {begins}: read it again at a newer ts"
    return None


def next_chunks(backfill: OpenBackfill, there: Collection[int], states: Sequence[TaskState]) -> list[int]:
    """The chunks whose footers are to be read: those that exist, are not known, and concern any of the tasks. Records
    what exists, so that the next LIST begins behind it."""
    backfill.there |= {number for number in there if number < len(backfill.plan.spans)}
    spans = [state.identity.span for state in states]
    return [
        number
        for number in sorted(backfill.there - backfill.base_ts.keys() - backfill.refused.keys())
        if any(backfill.plan.spans[number].overlaps(span) for span in spans)
    ]


def units(state: TaskState, backfill: OpenBackfill, new_nonce: NewNonce, count_max: int) -> list[BaseUnit]:
    """Chunks that the task takes now, at most `count_max`. A chunk above flushed_ts waits."""
    identity, out = state.identity, list[BaseUnit]()
    for number in wanted(state, backfill):
        base_ts = backfill.base_ts[number]
        if len(out) == count_max:
            break
        if base_ts > state.flushed_ts or refusal(state, backfill, number) is not None:
            continue
        planned = backfill.plan.spans[number]
        span = planned.clip(identity.span)
        assert span is not None, "a wanted chunk concerns the task"
        out.append(
            BaseUnit(
                tenant=identity.tenant,
                task_id=identity.task_id,
                chunk=ChunkId(backfill.tenant, backfill.backfill_id, number),
                planned=planned,
                span=span,
                table_id=table_id_of(planned),
                base_ts=base_ts,
                exact=backfill.plan.exact,
                flushed_ts=state.flushed_ts,
                segments=state.live_segments,
                runs=(),
                indexed_ts=INDEXED_TS,
                basis=state.basis.within(span).runs,
                epoch=identity.task_epoch,
                nonce=new_nonce(),
            )
        )
    return out


def with_bases(state: TaskState, made: Sequence[BaseMade]) -> tuple[TaskState, list[str]]:
    """The state with the bases of finished jobs, and the keys of runs that no manifest will name: retention has passed
    their base_ts meanwhile, or the same chunk was taken twice."""
    vain: list[str] = []
    for one in made:
        assert one.base is not None
        outdated = one.base.base_ts < state.begins_ts or _has(state, one.base.span, one.base.base_ts)
        if outdated:
            vain += [run.key for run in one.runs]
            continue
        state = replace(state, basis=state.basis.with_base(one.base, one.runs), restate=True)
    return state, vain


def _has(state: TaskState, span: KeySpan, base_ts: int) -> bool:
    """Whether every key of the span has a base at least as new."""
    known = clipped(state.basis.cover, span)
    return all(base.base_ts >= base_ts for base in known) and isinstance(base_ts_of(known, [span]), int)
