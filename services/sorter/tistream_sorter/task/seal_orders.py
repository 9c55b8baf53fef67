"""Decides the next step of an order to split or merge a task. Pure.

A split is one seal. In a merge each parent first commits a `stop_at` above its reported progress. Neither this holder
of the task nor a later one flushes or reports anything above it. Once every parent has reached the stop, all are sealed
at one flushed_ts. The log of the first parent decides (docs/adr/0020): that parent either withdraws its stop, or is
sealed in favour of the child. The other parents follow its log, whatever the owner orders after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tistream.errors import InvalidRequest
from tistream.format.manifest import SEALED, Merging
from tistream.format.task_view import TaskView
from tistream.model.span import KeySpan
from tistream.wire.meta import ChildTask, SealOrder
from tistream_sorter.state.task_state import TaskIdentity, TaskState

Children = tuple[tuple[int, KeySpan], ...]


@dataclass(frozen=True, slots=True)
class FittingOrder:
    """An order to split or merge that was checked against the task's span. `children` are in key order. `stop_at`: the
    ts at which tasks that merge stop; None for a split. `final`: a task that merges may seal itself once it has stopped
    there. `parents`: the ids of all tasks that merge, in key order; empty for a split."""

    children: Children
    stop_at: int | None
    final: bool
    parents: tuple[int, ...] = ()

    @property
    def merge(self) -> Merging | None:
        """The merge for which the task must stop; None for a split."""
        return None if self.stop_at is None else Merging(*self.children[0], self.parents)

    @property
    def bounds(self) -> tuple[bytes, ...]:
        """The keys at which a split cuts the task; empty for a merge."""
        return () if self.stop_at is not None else tuple(span.start for _, span in self.children[1:])


@dataclass(frozen=True, slots=True)
class SealStep:
    """What the next manifest must contain because of an order: its `stop_at` (None: no stop), the merge for which the
    task stops, and, if the manifest is a seal, the children."""

    stop_at: int | None
    merge: Merging | None = None
    children: Children = ()


@dataclass(frozen=True, slots=True)
class OtherParents:
    """What the logs of the other parents say about a merge. sealed: one of them is sealed in favour of the child, which
    cannot be undone. bound: the leading parent is another task and stops for the child, so it may be sealed in the
    child's favour at any moment."""

    sealed: bool
    bound: bool


def state_of_others(state: TaskState, views: Sequence[TaskView]) -> OtherParents:
    """Derive what the logs of the other parents say about the merge. `views` are these logs, in the order of
    `state.merge.parents`, read after this task stopped."""
    merge = state.merge
    assert merge is not None
    sealed = any(_ends(view, merge) for view in views)
    if decides_merge(state) or not views:
        return OtherParents(sealed, bound=False)
    newest = views[0].state
    stops = newest is not None and (newest.stop_at, newest.merge) == (state.stop_at, merge)
    return OtherParents(sealed, bound=stops and not views[0].sealed)


def _ends(view: TaskView, merge: Merging) -> bool:
    return view.sealed and view.last is not None and (merge.child, merge.span) in view.last.children


def decides_merge(state: TaskState) -> bool:
    """Whether this task's log decides about the merge for which it stops."""
    return state.merge is not None and state.merge.parents[:1] in ((), (state.identity.task_id,))


def other_parents(state: TaskState) -> list[int]:
    """The other parents of the merge for which the task stops, in key order. Empty if the order named no parents, as in
    a manifest of version 4; such a stop is withdrawn without reading another log."""
    return [] if state.merge is None else [one for one in state.merge.parents if one != state.identity.task_id]


def must_read(state: TaskState, order: FittingOrder | None) -> bool:
    """Whether the next step needs the logs of the other parents, because this task would withdraw or change its stop,
    or be sealed."""
    if state.merge is None or not other_parents(state):
        return False
    waits = order is not None and order.final and state.stop_at == state.progress_ts and not decides_merge(state)
    return waits or _wanted(state, order) != (state.stop_at, state.merge)


def read_order(order: SealOrder, identity: TaskIdentity) -> FittingOrder:
    """Parse an order. Raises InvalidRequest if its children do not cover each key of the task exactly once."""
    children = tuple(
        sorted(((child.task_id, _span(child)) for child in order.children), key=lambda child: child[1].start)
    )
    ids, spans = [task_id for task_id, _ in children], [span for _, span in children]
    if identity.task_id in ids or len(set(ids)) < len(ids):
        raise InvalidRequest(f"children {ids}: each must be a task of its own")
    if order.stop_at is not None:
        if len(spans) != 1 or spans[0].clip(identity.span) != identity.span:
            raise InvalidRequest(f"one child must hold all keys of the task in a merge; there are {spans}")
        return FittingOrder(children, order.stop_at, order.final, tuple(order.parents))
    whole = len(spans) > 1 and KeySpan(spans[0].start, spans[-1].end) == identity.span
    if not whole or any(left.end != right.start for left, right in pairwise(spans)):
        raise InvalidRequest(f"the children's spans {spans} do not make up the task's, {identity.span}")
    return FittingOrder(children, None, order.final)


def _span(child: ChildTask) -> KeySpan:
    try:
        start, end = bytes.fromhex(child.start_key), bytes.fromhex(child.end_key)
    except ValueError as error:
        raise InvalidRequest(f"child {child.task_id}: {error}") from error
    if end and start >= end:
        raise InvalidRequest(f"child {child.task_id} has no keys")
    return KeySpan(start, end)


def next_step(state: TaskState, order: FittingOrder | None, heard: OtherParents | None = None) -> SealStep | None:
    """The stop_at or seal that the next manifest must have for the order; None if there is nothing to do. Only a holder
    to which the route table still assigns the task may call this. `order` None: an earlier stop is withdrawn.

    `heard` is the result of `state_of_others()`. The caller must pass it if `must_read()` is true. If it could not be
    read, the caller passes None, and there is no step yet.
    """
    if must_read(state, order) and (heard is None or heard.sealed or heard.bound):
        return _ended(state) if heard is not None and heard.sealed else None
    stop_at, merge = _wanted(state, order)
    if (stop_at, merge) != (state.stop_at, state.merge):
        return SealStep(stop_at, merge)
    if order is None:
        return None
    if order.stop_at is None:
        return None if _undivided(state, order) else SealStep(None, None, order.children)
    arrived = order.final and state.stop_at == state.progress_ts and decides_merge(state)
    return SealStep(order.stop_at, state.merge, order.children) if arrived else None


def _ended(state: TaskState) -> SealStep | None:
    """The seal of a task whose merge cannot be undone any more, because another parent is sealed in favour of the
    child. None if there is no such merge, or until the task has reached the stop."""
    assert state.merge is not None
    ends = ((state.merge.child, state.merge.span),)
    return SealStep(state.stop_at, state.merge, ends) if state.stop_at == state.progress_ts else None


def _wanted(state: TaskState, order: FittingOrder | None) -> tuple[int | None, Merging | None]:
    return (order.stop_at, order.merge) if order is not None and may_stop(state, order) else (None, None)


def may_stop(state: TaskState, order: FittingOrder) -> bool:
    """Whether the order has a stop_at, and it is at or above the task's progress_ts (TaskState). While rows are
    pending, this progress_ts may be above what the task has flushed or reported."""
    return order.stop_at is not None and order.stop_at >= state.progress_ts


def _undivided(state: TaskState, order: FittingOrder) -> bool:
    """Whether a SEALED pending part has rows of two children. Such a part is a segment already and cannot be divided.
    The split waits until the watermark passes it and it is flushed; no new one is written across the cuts."""
    sealed = [part.span for part in state.pending if part.kind == SEALED]
    return any(all(span.clip(part) != part for _, span in order.children) for part in sealed)
