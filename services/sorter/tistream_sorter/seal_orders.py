"""What the owner wants of a task that is to be split or merged, and what its holder does about it next. Pure.

A split is one seal. Of tasks that are merged each first commits a `stop_at`, above all that it has told: it flushes and
tells nothing above it, and so does every later holder. Once all have come there they are sealed, at one flushed_ts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tistream.errors import InvalidRequest
from tistream.format.manifest import SEALED
from tistream.model.span import KeySpan
from tistream.wire.meta import ChildTask, SealOrder
from tistream_sorter.task_state import TaskIdentity, TaskState

Children = tuple[tuple[int, KeySpan], ...]


@dataclass(frozen=True, slots=True)
class Order:
    """An order that fits the task. `children` are in key order; a split has no `stop_at`."""

    children: Children
    stop_at: int | None
    final: bool

    @property
    def bounds(self) -> tuple[bytes, ...]:
        """Where the task is to be cut."""
        return () if self.stop_at is not None else tuple(span.start for _, span in self.children[1:])


@dataclass(frozen=True, slots=True)
class Step:
    """The next manifest that an order asks for: with this stop_at, and, if it is the seal, these children."""

    stop_at: int | None
    children: Children = ()


def read_order(order: SealOrder, identity: TaskIdentity) -> Order:
    """Raises InvalidRequest if the order does not fit the task: some of its keys would have no heir, or two."""
    children = tuple(
        sorted(((child.task_id, _span(child)) for child in order.children), key=lambda child: child[1].start)
    )
    ids, spans = [task_id for task_id, _ in children], [span for _, span in children]
    if identity.task_id in ids or len(set(ids)) < len(ids):
        raise InvalidRequest(f"children {ids}: each must be a task of its own")
    if order.stop_at is not None:
        if len(spans) != 1 or spans[0].clip(identity.span) != identity.span:
            raise InvalidRequest(f"one child must hold all keys of the task in a merge; there are {spans}")
        return Order(children, order.stop_at, order.final)
    whole = len(spans) > 1 and KeySpan(spans[0].start, spans[-1].end) == identity.span
    if not whole or any(left.end != right.start for left, right in pairwise(spans)):
        raise InvalidRequest(f"the children's spans {spans} do not make up the task's, {identity.span}")
    return Order(children, None, order.final)


def _span(child: ChildTask) -> KeySpan:
    try:
        start, end = bytes.fromhex(child.start_key), bytes.fromhex(child.end_key)
    except ValueError as error:
        raise InvalidRequest(f"child {child.task_id}: {error}") from error
    if end and start >= end:
        raise InvalidRequest(f"child {child.task_id} has no keys")
    return KeySpan(start, end)


def next_step(state: TaskState, order: Order | None) -> Step | None:
    """What to commit now; None: nothing but what the files ask for. Only the holder with a current route may ask."""
    stop_at = order.stop_at if order is not None and may_stop(state, order) else None
    if stop_at != state.stop_at:
        return Step(stop_at)
    if order is None:
        return None
    if order.stop_at is None:
        return None if _undivided(state, order) else Step(None, order.children)
    arrived = order.final and state.stop_at == state.progress_ts
    return Step(order.stop_at, order.children) if arrived else None


def may_stop(state: TaskState, order: Order) -> bool:
    """Whether what the task has flushed and told leaves the order's stop_at ahead of it."""
    return order.stop_at is not None and order.stop_at >= state.progress_ts


def _undivided(state: TaskState, order: Order) -> bool:
    """Whether a part that cannot be divided, since it is a segment already, has rows of two children. It goes when the
    watermark passes it, and no new one is written across the cuts."""
    sealed = [part.span for part in state.pending if part.kind == SEALED]
    return any(all(span.clip(part) != part for _, span in order.children) for part in sealed)
