"""Derives the first state of a child task from its sealed parents (design.md 4). Pure.

For each key it is the state of the parent that held the key. Files that only some of several parents have processed are
sent again. For the keys of those parents, the rows of such files are repeats, which the kernel drops: a pending row by
its (key, start_ts), a flushed row by a lookup in the pool, any other covered row by its place in the log (design.md 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tistream.errors import InvariantBroken, Unavailable
from tistream.format.manifest import SEALED, Manifest, PendingPart
from tistream.format.run import Index
from tistream.format.segment import SegmentRef
from tistream.format.task_view import TaskView
from tistream.model.base_cover import Base, clipped, laid_over
from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import SCHEMA_SPANS
from tistream_sorter.state.intake import inherited
from tistream_sorter.state.positions import common
from tistream_sorter.state.task_state import TaskIdentity, TaskState, after_manifest, first_state
from tistream_sorter.upkeep import version_index
from tistream_sorter.watermark.inherited_slices import inherited_slices


def inherited_state(identity: TaskIdentity, parents: Sequence[TaskView], number: int) -> TaskState:
    """The state of a child task whose own log holds only claims. `number`: the number of its last claim.

    Raises:
        Unavailable: a parent is not sealed in favour of this child yet.
        InvariantBroken: the seals contradict each other.
    """
    seals = sorted((_seal_of(view, identity) for view in parents), key=lambda seal: seal.span.start)
    _check_cover(identity, seals)
    flushed_ts = {seal.flushed_ts for seal in seals}
    if len(flushed_ts) > 1:
        reason = f"task {identity.task_id}: its parents were sealed at {sorted(flushed_ts)}, not at one flushed_ts"
        raise InvariantBroken(5, reason)
    positions = common([seal.positions for seal in seals], seals[0].flushed_ts)
    state = replace(
        first_state(identity, number),
        flushed_ts=flushed_ts.pop(),
        slices=inherited_slices(identity.span, seals),
        positions=positions,
        pending=tuple(piece for seal in seals for piece in _clipped(seal.pending, identity.span)),
        live_segments=_united([view.segments for view in parents]),
        cover=laid_over((), (base for view in parents for base in _bases_of(view, identity.span))),
        stop_at=seals[0].stop_at,  # the tick that lifts the stop flushes the rows between stop_at and the watermark
        inherited=True,
        retained_ts=max(seal.retained_ts for seal in seals),
        schema_retained_ts=_schema_retained_ts(identity.span, seals),
        heritage=tuple(sorted({task_id for seal in seals for task_id in (seal.task_id, *seal.heritage)})),
        intake=inherited(identity, seals[0], positions),
        index=_index(identity, parents),
    )
    return after_manifest(state)


def _index(identity: TaskIdentity, parents: Sequence[TaskView]) -> Index:
    """Join the version indexes of the parents, clipped to the child's span. A parent without an index has all versions
    above its retained_ts."""
    found = []
    for view in parents:
        seal = _seal_of(view, identity)
        found.append((seal.span, view.index, max(identity.snapshot_ts, seal.retained_ts)))
    return version_index.inherited(identity.span, sorted(found, key=lambda one: one[0].start))


def _bases_of(view: TaskView, span: KeySpan) -> Sequence[Base]:
    """The bases (spans of which a backfill knows all rows) that a sealed parent passes on to the child with `span`."""
    assert view.last is not None
    own = view.last.span.clip(span)
    return () if own is None else clipped(view.cover, own)


def _seal_of(view: TaskView, identity: TaskIdentity) -> Manifest:
    last = view.last
    if last is None or not view.sealed:
        what = "a parent" if last is None else f"parent {last.task_id}"
        raise Unavailable(f"task {identity.task_id}: {what} is not sealed yet")
    if (identity.task_id, identity.span) not in last.children:
        children = [task_id for task_id, _ in last.children]
        raise Unavailable(f"task {identity.task_id}: parent {last.task_id} was sealed in favour of {children}")
    return last


def _check_cover(identity: TaskIdentity, seals: Sequence[Manifest]) -> None:
    spans = [piece for seal in seals if (piece := seal.span.clip(identity.span)) is not None]
    whole = bool(spans) and KeySpan(spans[0].start, spans[-1].end) == identity.span
    if not whole or len(spans) < len(seals) or any(left.end != right.start for left, right in pairwise(spans)):
        raise InvariantBroken(1, f"task {identity.task_id}: its parents' spans {spans} do not make up its own")


def _clipped(parts: Sequence[PendingPart], span: KeySpan) -> list[PendingPart]:
    out = []
    for part in parts:
        piece = part.span.clip(span)
        if piece is not None and part.kind == SEALED:
            assert piece == part.span, (
                "the parent was sealed although a SEALED part, which cannot be divided, has keys of two children"
            )
        if piece is not None:
            out.append(replace(part, span=piece))
    return out


def _schema_retained_ts(span: KeySpan, seals: Sequence[Manifest]) -> int:
    """The child's schema_retained_ts: the highest of the parents that held schema keys of the child, or of all parents
    if the child has no schema key."""
    own = [one for one in (span.clip(schema) for schema in SCHEMA_SPANS) if one is not None]
    schema_retained = [seal.schema_retained_ts for seal in seals if any(seal.span.overlaps(one) for one in own)]
    return max(schema_retained or (seal.retained_ts for seal in seals))


def _united(several: Sequence[Sequence[SegmentRef]]) -> tuple[SegmentRef, ...]:
    """The union of lists of segments. Parents that are children of the same task share some of its segments."""
    return tuple({segment.key: segment for segments in several for segment in segments}.values())
