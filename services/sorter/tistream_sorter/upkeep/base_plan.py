"""Selects the base chunks that become base runs of a task next, and decides why others wait or are refused
(docs/adr/0030). Pure.

A chunk is used by each task that its span overlaps, clipped to the task's span. The task's log must have every change
above the chunk's base_ts: so base_ts is at or above the tenant's snapshot_ts and the task's retained_ts, and it must
have been flushed.

That also makes folds of the version index safe, which drop deletes at or below retained_ts. A chunk as of S at or above
it cannot have a row that a dropped delete has ended: either the key was put again up to S, and the log has that put, or
the chunk does not have the key. Retention waits for the open backfills (`kept_above`), so that it does not pass their
chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tistream.format.backfill.base_chunk import ChunkId
from tistream.format.backfill.chunk_plan import ChunkPlan, table_id_of
from tistream.model.base_cover import base_ts_of, clipped, laid_over
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.upkeep.version_index import BYTES_IN, BYTES_OUT, based, index_of

NewNonce = Callable[[], str]


@dataclass(slots=True)
class OpenBackfill:
    """What a sorter knows about a backfill that is not finished: its plan, and the base_ts of each chunk that exists.
    `old_values`: whether a change without an old value had no row before; false with a log backup as a source.
    `refused`: chunks that are damaged or contradict the log, with the reason."""

    tenant: TenantKey
    backfill_id: str
    plan: ChunkPlan
    old_values: bool = True
    base_ts: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    there: set[int] = field(default_factory=set)  # the numbers of chunks that exist

    @property
    def complete(self) -> bool:
        """Whether every chunk of the plan exists."""
        return len(self.there) == len(self.plan.spans)

    @property
    def first_unknown(self) -> int:
        """The lowest chunk number of which it is not known whether the chunk exists."""
        return next(number for number in range(len(self.plan.spans) + 1) if number not in self.there)


def wanted(state: TaskState, backfill: OpenBackfill) -> list[int]:
    """The numbers, in order, of the existing chunks that overlap the task's span, were not refused, and that the task
    has not converted yet. Chunks whose base_ts is not known yet are left out."""
    identity = state.identity
    return [
        number
        for number, base_ts in sorted(backfill.base_ts.items())
        if number not in backfill.refused
        and (part := backfill.plan.spans[number].clip(identity.span)) is not None
        and not _has(state, part, base_ts)
    ]


def refusal(state: TaskState, backfill: OpenBackfill, number: int) -> str | None:
    """The reason why a task refuses a chunk for ever; None if it may accept it, or does not overlap it."""
    base_ts, plan = backfill.base_ts[number], backfill.plan
    if base_ts < plan.min_ts:
        return f"is as of {base_ts}, below the min_ts {plan.min_ts} of its plan"
    if base_ts < state.begins_ts and plan.spans[number].overlaps(state.identity.span):
        begins = f"the log of task {state.identity.task_id} begins at {state.begins_ts}"
        return f"is as of {base_ts}, but {begins}: read it again at a newer ts"
    return None


def next_chunks(backfill: OpenBackfill, there: Collection[int], states: Sequence[TaskState]) -> list[int]:
    """Add the chunks `there`, which were found by LIST, to those that `backfill` knows, so that the next LIST begins
    after them. Returns the chunks whose footers must be read: those that exist, overlap one of the tasks, and whose
    base_ts is not known."""
    backfill.there |= {number for number in there if number < len(backfill.plan.spans)}
    spans = [state.identity.span for state in states]
    return [
        number
        for number in sorted(backfill.there - backfill.base_ts.keys() - backfill.refused.keys())
        if any(backfill.plan.spans[number].overlaps(span) for span in spans)
    ]


def kept_above(open_backfills: Iterable[ChunkPlan | None]) -> int:
    """The ts above which the tenant's rows must be kept, because chunks of open backfills may be as of any ts above it.
    It is the lowest min_ts of their plans, 0 if a plan is not known yet, MAX_TS if no backfill is open."""
    return min((0 if plan is None else plan.min_ts for plan in open_backfills), default=MAX_TS)


def units(state: TaskState, backfill: OpenBackfill, new_nonce: NewNonce, count_max: int) -> list[BaseUnit]:
    """Select the chunks that the task converts to base runs now, as one unit for each pair of chunk and part of the
    index. The units of a chunk stay together; once there are `count_max` units, no further chunk is added. A chunk
    whose base_ts is above flushed_ts waits."""
    identity, out = state.identity, list[BaseUnit]()
    for number in wanted(state, backfill):
        base_ts = backfill.base_ts[number]
        if len(out) >= count_max:
            break
        if base_ts > state.flushed_ts or refusal(state, backfill, number) is not None:
            continue
        planned = backfill.plan.spans[number]
        for part in index_of(state):
            span = planned.clip(part.span)
            clipped_part = None if span is None else part.clipped(span)
            if span is None or clipped_part is None or _has(state, span, base_ts):
                continue
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
                    old_values=backfill.old_values,
                    flushed_ts=state.flushed_ts,
                    segments=state.live_segments,
                    runs=clipped_part.runs,
                    indexed_ts=part.indexed_ts,
                    basis=clipped_part.basis,
                    epoch=identity.task_epoch,
                    nonce=new_nonce(),
                )
            )
    return out


def with_bases(state: TaskState, made: Sequence[BaseResult]) -> tuple[TaskState, list[str]]:
    """Add the results of finished jobs to the state. Returns the new state, and the keys of runs that no manifest will
    name, because retention has passed their base_ts, or the same chunk was converted twice.

    Merges of the index that were committed in between do not matter: the rows of a base are those without an older
    version, wherever the index has them. The bytes of the runs count as read and as written (index_plan.py).
    """
    vain: list[str] = []
    for one in made:
        assert one.base is not None
        outdated = one.base.base_ts < state.begins_ts or _has(state, one.base.span, one.base.base_ts)
        if outdated:
            vain += [run.key for run in one.runs]
            continue
        size, counters = sum(run.size for run in one.runs), dict(state.counters)
        for name in (BYTES_IN, BYTES_OUT):
            counters[name] = counters.get(name, 0) + size
        state = replace(
            state,
            cover=laid_over(state.cover, [one.base]),
            index=based(index_of(state), one.base, one.runs),
            counters=dict(sorted(counters.items())),
            restate=True,
        )
    return state, vain


def _has(state: TaskState, span: KeySpan, base_ts: int) -> bool:
    """Whether every key of the span has a base with this base_ts or a newer one."""
    known = clipped(state.cover, span)
    return all(base.base_ts >= base_ts for base in known) and isinstance(base_ts_of(known, [span]), int)
