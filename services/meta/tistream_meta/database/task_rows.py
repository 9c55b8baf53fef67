"""Reads and writes the rows of `tasks`. Every function runs inside a transaction of the repository."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from tistream.errors import AlreadyDiffers
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_meta.database import counter_rows, tables
from tistream_meta.database.seal_columns import parents_of, parents_text, seal_of, seal_text
from tistream_meta.decide.model import Child, Task
from tistream_meta.decide.split_merge import Succession, TaskOrder
from tistream_meta.decide.task_phases import PhaseEvent
from tistream_meta.decide.task_policy import Command

_TASKS = tables.tasks
_AT_ONCE = 500  # ids in one statement


def all_tasks(connection: Connection) -> tuple[Task, ...]:
    """All tasks, by tenant and key."""
    rows = connection.execute(select(_TASKS).order_by(_TASKS.c.task_id)).all()
    return tuple(sorted(map(_task, rows), key=lambda task: (task.tenant, task.span.start)))


def some(connection: Connection, task_ids: Sequence[int]) -> tuple[Task, ...]:
    """The tasks with these ids. Ids that no task has are left out."""
    found: list[Task] = []
    for at in range(0, len(task_ids), _AT_ONCE):
        query = select(_TASKS).where(_TASKS.c.task_id.in_(task_ids[at : at + _AT_ONCE]))
        found += map(_task, connection.execute(query))
    return tuple(found)


def at_sorter(connection: Connection, sorter: str) -> tuple[Task, ...]:
    """The tasks that are assigned to a sorter."""
    return tuple(map(_task, connection.execute(select(_TASKS).where(_TASKS.c.sorter_node == sorter))))


def add(
    connection: Connection,
    tenant: TenantKey,
    children: Iterable[Child],
    sorter: str | None = None,
    parents: Sequence[int] = (),
) -> None:
    """Insert the tasks `children`, which continue the sealed tasks `parents`. With `sorter` they are assigned to it
    under their first epoch, otherwise they have no sorter."""
    epoch = 0 if sorter is None else 1
    _insert(
        connection, [Task(one.task_id, tenant, one.span, sorter, epoch, parents=tuple(parents)) for one in children]
    )


def begin(
    connection: Connection, tenant: TenantKey, spans: Sequence[KeySpan], continued: Sequence[Task], last_id: int
) -> tuple[Task, ...]:
    """Insert a tenant's first tasks, one for each of `spans`. `continued` are tasks that have manifests but that a
    restored database has forgotten; they are inserted with their ids. New ids are above `last_id`. Raises
    AlreadyDiffers if another task has one of their ids."""
    for other in some(connection, [task.task_id for task in continued])[:1]:
        raise AlreadyDiffers(
            f"task {other.task_id} has manifests of this tenant, and the meta database gave its id to {other.tenant} "
            "after it was restored: restore the backup again, and create this tenant before any other"
        )
    counter_rows.raise_to(connection, tables.LAST_TASK_ID, last_id)
    first = counter_rows.next_task_ids(connection, len(spans))
    new = [Task(first + at, tenant, span, None, 0) for at, span in enumerate(spans)]
    _insert(connection, [*continued, *new])
    return (*continued, *new)


def _insert(connection: Connection, tasks: Iterable[Task]) -> None:
    rows = [
        {
            "task_id": task.task_id,
            "cluster_id": task.tenant.cluster_id,
            "tenant_id": task.tenant.tenant_id,
            "range_start": task.span.start,
            "range_end": task.span.end,
            "sorter_node": task.sorter_node,
            "task_epoch": task.task_epoch,
            "parents": parents_text(task.parents),
        }
        for task in tasks
    ]
    if rows:
        connection.execute(insert(_TASKS), rows)


def order_seals(connection: Connection, one: TaskOrder) -> None:
    """Store or delete the order to seal tasks (to split or merge them)."""
    connection.execute(update(_TASKS).where(_TASKS.c.task_id.in_(one.task_ids)).values(seal=seal_text(one.seal)))


def replace_sealed(connection: Connection, one: Succession) -> None:
    """Replace sealed tasks by their children, which are assigned to the sorter of the parent with the lowest id."""
    parents = _TASKS.c.task_id.in_(one.parents)
    sorter = (
        connection.execute(select(_TASKS.c.sorter_node).where(parents).order_by(_TASKS.c.task_id)).scalars().first()
    )
    connection.execute(delete(_TASKS).where(parents))
    add(connection, one.tenant, one.children, sorter, one.parents)
    # A restored database may receive a seal without knowing that the children's ids are in use.
    counter_rows.raise_to(connection, tables.LAST_TASK_ID, max(child.task_id for child in one.children))


def execute_moves(connection: Connection, commands: Iterable[Command]) -> None:
    """Write steps of the moves of tasks to other sorters: PREPARE stores the next sorter, HAND_OVER assigns the task to
    it under a new epoch, and any other step removes the next sorter."""
    held: list[dict[str, Any]] = []
    named: list[dict[str, Any]] = []
    for command in commands:
        values = {"of_task": command.task_id, "node": command.node}
        if command.step is PhaseEvent.HAND_OVER:
            held.append(values)
        else:
            named.append(values | {"node": command.node if command.step is PhaseEvent.PREPARE else None})
    this_task = _TASKS.c.task_id == bindparam("of_task")
    if named:
        connection.execute(update(_TASKS).where(this_task).values(next_node=bindparam("node")), named)
    if held:
        values_held = {
            "sorter_node": bindparam("node"),
            "task_epoch": _TASKS.c.task_epoch + 1,
            "next_node": None,
        }
        connection.execute(update(_TASKS).where(this_task).values(**values_held), held)


def raise_epochs(connection: Connection, above: Mapping[int, int]) -> None:
    """Raise the epoch of each task in `above` (by task id) above the given one, unless it is higher already. That is
    the epoch of a claim in the task's manifests, which a restored database does not know."""
    lower = (_TASKS.c.task_id == bindparam("of_task")) & (_TASKS.c.task_epoch <= bindparam("above"))
    rows = [{"of_task": task_id, "above": epoch, "epoch": epoch + 1} for task_id, epoch in above.items()]
    connection.execute(update(_TASKS).where(lower).values(task_epoch=bindparam("epoch")), rows)


def fence(connection: Connection, sorter: str) -> None:
    """Raise the epochs of a sorter's tasks. An earlier start of the sorter process can then not write them any more."""
    connection.execute(update(_TASKS).where(_TASKS.c.sorter_node == sorter).values(task_epoch=_TASKS.c.task_epoch + 1))


def _task(row: Row[Any]) -> Task:
    return Task(
        row.task_id,
        TenantKey(row.cluster_id, row.tenant_id),
        KeySpan(bytes(row.range_start), bytes(row.range_end)),
        row.sorter_node,
        row.task_epoch,
        row.next_node,
        parents_of(row.parents),
        seal_of(row.seal),
    )
