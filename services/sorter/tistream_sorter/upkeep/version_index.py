"""Computes a task's next version index, which has every version of every key in runs sorted by key. Pure.

It begins an index, replaces the inputs of a merge by its output, and makes a child's index from those of its parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tistream.format.run import Index, IndexPart, RunRef
from tistream.model.base_cover import Base
from tistream.model.span import KeySpan
from tistream_sorter.jobs.index.index_unit import IndexUnit
from tistream_sorter.state.task_state import TaskState

# Counters of a task: bytes of segments that runs were made of, and bytes of run objects that were written.
BYTES_IN, BYTES_OUT = "indexed_bytes", "run_bytes"


def index_of(state: TaskState) -> Index:
    """The version index of the task. If it has none, a new one that begins above all rows that may have been dropped
    from the pool already."""
    return state.index or (begun_part(state.identity.span, max(state.identity.snapshot_ts, state.retained_ts)),)


def begun_part(span: KeySpan, begins_ts: int) -> IndexPart:
    """A part of a new index, without runs."""
    return IndexPart(span, begins_ts, begins_ts, begins_ts)


def merged(state: TaskState, unit: IndexUnit, written: Sequence[RunRef]) -> TaskState | None:
    """The state with the output of a merge in place of its inputs; None if the state no longer has all inputs."""
    index = index_of(state)
    at = next((at for at, part in enumerate(index) if part.span == unit.span), None)
    if at is None:
        return None
    after = _merged_part(index[at], unit, tuple(written))
    if after is None:
        return None
    counters = dict(state.counters)
    counters[BYTES_IN] = counters.get(BYTES_IN, 0) + unit.source_bytes
    counters[BYTES_OUT] = counters.get(BYTES_OUT, 0) + sum(run.size for run in written)
    parts = (*index[:at], after, *index[at + 1 :])
    return replace(state, index=united(parts), counters=dict(sorted(counters.items())), restate=True)


def _merged_part(part: IndexPart, unit: IndexUnit, written: tuple[RunRef, ...]) -> IndexPart | None:
    if unit.segments or not unit.runs:  # new rows, or a window without segments, which has no rows either
        if part.indexed_ts != unit.low_ts:
            return None
        return replace(part, indexed_ts=unit.high_ts, runs=part.runs + written)
    gone = {run.key for run in (*unit.runs, *unit.keep)}
    if not gone <= {run.key for run in (*part.runs, *part.basis)}:
        return None
    left = tuple(run for run in part.runs if run.key not in gone)
    if unit.low_ts is None:
        base = sorted(
            (*(replace(run, high_ts=unit.high_ts) for run in unit.keep), *written), key=lambda run: run.first[1]
        )
        basis = tuple(run for run in part.basis if run.key not in gone)
        return replace(part, base_ts=unit.high_ts, runs=(*base, *left), basis=basis)
    after = replace(part, runs=left + written)
    return replace(after, runs=after.base + tuple(run for runs in after.by_window() for run in runs))


def based(index: Index, base: Base, runs: Sequence[RunRef]) -> Index:
    """Add a base to the index: the objects `runs`, in key order, with the rows of its span. The index must cover the
    span."""
    out = []
    for part in index:
        piece = part.span.clip(base.span)
        mine = () if piece is None else tuple(run for run in runs if run.touches(piece))
        basis = tuple(sorted((*part.basis, *mine), key=lambda run: run.first[1]))
        out.append(replace(part, basis=basis))
    return united(tuple(out))


def united(index: Index) -> Index:
    """Join neighbouring parts of the index where all timestamps are equal, the windows of their runs are equal or
    disjoint, and no object that only one of them names has keys of the other."""
    out: list[IndexPart] = []
    for part in index:
        both = _joined(out[-1], part) if out else None
        if both is None:
            out.append(part)
        else:
            out[-1] = both
    return tuple(out)


def _joined(left: IndexPart, right: IndexPart) -> IndexPart | None:
    """Join two neighbouring parts; None if their timestamps differ, if their windows overlap without being equal, or if
    an object that only one of them names has keys outside of that part's span."""
    if (left.begins_ts, left.base_ts, left.indexed_ts) != (right.begins_ts, right.base_ts, right.indexed_ts):
        return None
    windows = sorted({(run.low_ts, run.high_ts) for run in (*left.runs, *right.runs) if run.low_ts is not None})
    if any(before[1] > after[0] for before, after in pairwise(windows)):
        return None
    objects = [(part.span, (*part.runs, *part.basis)) for part in (left, right)]
    shared = set.intersection(*({run.key for run in runs} for _, runs in objects))
    if not all(_fits(run, span) or run.key in shared for span, runs in objects for run in runs):
        return None  # otherwise an object's keys of another task would reappear in a span that another run covers
    span = KeySpan(left.span.start, right.span.end)
    basis = tuple(sorted(_each_once(left.basis, right.basis), key=lambda run: run.first[1]))
    both = IndexPart(span, left.begins_ts, left.base_ts, left.indexed_ts, _each_once(left.runs, right.runs), basis)
    ordered = both.base + tuple(run for runs in both.by_window() for run in runs)
    return replace(both, runs=ordered)


def _each_once(*several: Sequence[RunRef]) -> tuple[RunRef, ...]:
    return tuple({run.key: run for runs in several for run in runs}.values())


def _fits(run: RunRef, span: KeySpan) -> bool:
    return run.first[1] in span and run.last[1] in span


def inherited(span: KeySpan, parents: Sequence[tuple[KeySpan, Index, int]]) -> Index:
    """The index of a child task: its parents' indexes, cut to `span` and joined; () if none has one. `parents` has, in
    key order, (span, index, begins_ts) of each parent. Beside a parent that has an index, one without counts as an
    empty index that begins at its begins_ts, because all its versions are above it."""
    if not any(index for _, index, _ in parents):
        return ()
    pieces: list[IndexPart] = []
    for own, index, begins_ts in parents:
        clipped = [part.clipped(span) for part in index or (begun_part(own, begins_ts),)]
        pieces += [part for part in clipped if part is not None]
    return united(tuple(pieces))
