"""Finds the tasks with which a tenant continues, from the manifests of all tasks that it ever had. Pure.

A restored meta database may have forgotten that a tenant started, and its tasks with it. Their manifests are the truth:
they have the committed rows and the positions in the stores' chains, and files before these positions may be deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tistream.errors import InvariantBroken
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan, merge_spans, shown_key
from tistream_meta.decide.model import Child, Task


@dataclass(frozen=True, slots=True)
class PoolTask:
    """A task as its manifests show it. `epoch` is that of the newest claim. `begun`: a manifest with the task's state
    exists, not only claims. `children` are the tasks that its seal names; empty if it is not sealed."""

    task_id: int
    span: KeySpan
    epoch: int
    begun: bool
    children: tuple[Child, ...] = ()


@dataclass(frozen=True, slots=True)
class Frontier:
    """The tasks that continue a tenant, `tasks`, and the keys for which no task ever had a manifest, `gaps`. last_id:
    the highest task id that the manifests name; 0 without tasks."""

    tasks: tuple[Task, ...]
    gaps: tuple[KeySpan, ...]
    last_id: int

    def first_spans(self, cuts: Sequence[KeySpan]) -> list[KeySpan]:
        """The parts of `cuts` that lie in `gaps`, so that new tasks are needed for them."""
        return [piece for gap in self.gaps for span in cuts if (piece := span.clip(gap)) is not None]


NO_TASKS = Frontier((), (WHOLE,), 0)


def frontier(tenant: TenantKey, found: Collection[PoolTask]) -> Frontier:
    """The tasks that hold the tenant's keys now, each key once: tasks without a seal, and children of seals. A child of
    which not all parents are sealed does not exist yet. Its sealed parents stay, and the owner orders the seals of the
    others (split_merge.forgotten). Raises InvariantBroken if two tasks hold the same key."""
    known = {task.task_id for task in found}
    parents: dict[Child, list[PoolTask]] = defaultdict(list)
    for task in found:
        for child in task.children:
            parents[child].append(task)
    whole = {child for child, of in parents.items() if _cover(of, child.span)}
    ids_of = {child.task_id: tuple(sorted(task.task_id for task in parents[child])) for child in whole}
    living = [_task(tenant, child.task_id, child.span, 0, ids_of) for child in whole if child.task_id not in known]
    for task in found:
        if not all(child in whole or child.task_id in known for child in task.children) or not task.children:
            born_of = {} if task.begun else ids_of
            living.append(_task(tenant, task.task_id, task.span, task.epoch, born_of))
    living.sort(key=lambda task: task.span.start)
    last_id = max([*known, *(child.task_id for child in parents)], default=0)
    return Frontier(tuple(living), tuple(_gaps(living)), last_id)


def _task(tenant: TenantKey, task_id: int, span: KeySpan, epoch: int, parents: dict[int, tuple[int, ...]]) -> Task:
    return Task(task_id, tenant, span, None, epoch, parents=parents.get(task_id, ()))


def _cover(parents: Sequence[PoolTask], span: KeySpan) -> bool:
    pieces = [piece for task in parents if (piece := task.span.clip(span)) is not None]
    return merge_spans(pieces, len(pieces) + 1) == (span,)


def _gaps(living: Sequence[Task]) -> list[KeySpan]:
    """The keys that no task holds, between tasks that are ordered by key. Raises InvariantBroken if two of them
    overlap."""
    gaps: list[KeySpan] = []
    at: bytes | None = b""  # None: the end of all keys
    before: Task | None = None
    for task in living:
        start = task.span.start
        if at is None or start < at:
            other = before.task_id if before is not None else 0
            raise InvariantBroken(
                14,
                f"tasks {other} and {task.task_id} both have manifests for key {shown_key(start)}, because the tenant "
                "was begun twice. Restore a newer backup of the meta database",
            )
        if at < start:
            gaps.append(KeySpan(at, start))
        at, before = task.span.end or None, task
    return gaps if at is None else [*gaps, KeySpan(at, b"")]
