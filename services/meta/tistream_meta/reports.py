"""What sorters tell of their tasks with each heartbeat, as this owner has heard it. Pure.

A report replaces the one before, whole. One that comes late, or twice, is told by its sequence, which grows with each
heartbeat of a start of a process; a newer start begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream_meta.model import Child, Task
from tistream_meta.placement import Placement
from tistream_meta.seals import NOTHING_TOLD, Told
from tistream_meta.starts import Start


@dataclass(frozen=True, slots=True)
class Holding:
    """One task of a report: held under task_epoch, or (`prepared`) ready to be taken over, or `sealed` with these
    children. `load`: bytes a second; the rest as in wire.meta.TaskReport."""

    task_id: int
    task_epoch: int
    prepared: bool = False
    load: float = 0.0
    split_key: bytes = b""
    progress_ts: int = 0
    stop_at: int | None = None
    sealed: tuple[Child, ...] = ()


@dataclass(slots=True)
class _Heard:
    start: Start
    sequence: int
    held: dict[int, Holding]
    prepared: dict[int, Holding]
    since_ms: dict[tuple[int, int], int]  # (task, epoch) held -> first heard


@dataclass(slots=True)
class Reports:
    """The newest of every node."""

    _of: dict[str, _Heard] = field(default_factory=dict)

    def take(
        self, node_id: str, start: Start, sequence: int, holdings: Iterable[Holding], now_ms: int
    ) -> set[int] | None:
        """Take a report; the tasks of which it tells something else than the one before. None if it is older than what
        was heard. Monotonic time."""
        known = self._of.get(node_id)
        if known is not None and known.start == start and sequence <= known.sequence:
            return None
        held: dict[int, Holding] = {}
        prepared: dict[int, Holding] = {}
        for one in holdings:
            (prepared if one.prepared else held)[one.task_id] = one
        before = known.since_ms if known is not None and known.start == start else {}
        keys = [(one.task_id, one.task_epoch) for one in held.values()]
        since_ms = {key: before.get(key, now_ms) for key in keys}
        self._of[node_id] = _Heard(start, sequence, held, prepared, since_ms)
        if known is None:
            return {*held, *prepared}
        return _differing(known.held, held) | _differing(known.prepared, prepared)

    def forget(self) -> None:
        """A new owner has heard nobody."""
        self._of.clear()

    def placement(self, task: Task) -> Placement:
        """The task, with what its sorter and the next one have told."""
        held = self._holding(task.sorter_node, task.task_id)
        following = self._of.get(task.next_node or "")
        return Placement(
            task_id=task.task_id,
            sorter_node=task.sorter_node,
            task_epoch=task.task_epoch,
            next_node=task.next_node,
            held=held is not None and held.task_epoch == task.task_epoch,
            prepared=following is not None and task.task_id in following.prepared,
            ordered=task.seal is not None,
            sealed=held is not None and bool(held.sealed),
        )

    def told(self, task: Task, now_ms: int) -> Told:
        """What the task's sorter told of it last. Monotonic time."""
        one = self._holding(task.sorter_node, task.task_id)
        if one is None:
            return NOTHING_TOLD
        if one.task_epoch != task.task_epoch:  # a seal stays one, whoever tells of it
            return Told(sealed=one.sealed)
        since_ms = self._of[task.sorter_node or ""].since_ms[one.task_id, one.task_epoch]
        return Told(
            held=not one.sealed,
            load=one.load,
            split_key=one.split_key,
            progress_ts=one.progress_ts,
            stop_at=one.stop_at,
            sealed=one.sealed,
            settled_ms=now_ms - since_ms,
        )

    def load(self, task: Task) -> float:
        """Bytes a second of a task; 0 until its sorter has told."""
        held = self._holding(task.sorter_node, task.task_id)
        return 0.0 if held is None else held.load

    def _holding(self, node_id: str | None, task_id: int) -> Holding | None:
        heard = self._of.get(node_id or "")
        return None if heard is None else heard.held.get(task_id)


def _differing(before: Mapping[int, Holding], after: Mapping[int, Holding]) -> set[int]:
    """Tasks whose place in the schedule may have changed; how much they do, and how far they are, does not count."""
    return {
        task_id for task_id in before.keys() | after.keys() if _place(before.get(task_id)) != _place(after.get(task_id))
    }


def _place(one: Holding | None) -> tuple[object, ...] | None:
    return None if one is None else (one.task_epoch, one.stop_at, one.sealed)
