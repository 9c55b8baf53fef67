"""The reports about tasks in the sorters' heartbeats, as this owner has received them. Pure. A report replaces the one
before as a whole. A late or repeated report is recognised by its sequence number, which grows with each heartbeat of a
process start; a newer start begins again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.model import Child, Task
from tistream_meta.decide.split_merge import NO_REPORT, SorterReport
from tistream_meta.decide.task_phases import Placement

MEASURING_MS = 30_000  # how long a sorter must have held a task before its load counts as measured


@dataclass(frozen=True, slots=True)
class ReportedTask:
    """What a sorter reports about one task: it holds the task under `task_epoch`, or is `prepared` to take it over, or
    has `sealed` it with these children, or could not claim it under `task_epoch` because of epoch `fenced_by`. `load`:
    bytes per second. `split_key`: a key that halves the load; empty if it is not known. `stop_at`: the stop for a merge
    that a manifest has."""

    task_id: int
    task_epoch: int
    prepared: bool = False
    load: float = 0.0
    split_key: bytes = b""
    progress_ts: int = 0
    stop_at: int | None = None
    sealed: tuple[Child, ...] = ()
    fenced_by: int | None = None


@dataclass(slots=True)
class _Heard:
    start: Start
    sequence: int
    held: dict[int, ReportedTask]
    prepared: dict[int, ReportedTask]
    since_ms: dict[tuple[int, int], int]  # (task, epoch) held -> time of the first report
    moved_ms: dict[tuple[int, int], int]  # (task, epoch) held -> time of the last change of its progress
    fenced: dict[int, ReportedTask]


@dataclass(slots=True)
class Reports:
    """The newest report of every sorter about its tasks."""

    _of: dict[str, _Heard] = field(default_factory=dict)
    _measured: dict[int, float] = field(default_factory=dict)  # task -> load reported by a holder after MEASURING_MS

    def take(
        self, node_id: str, start: Start, sequence: int, holdings: Iterable[ReportedTask], now_ms: int
    ) -> set[int] | None:
        """Store a report. Returns the tasks whose state differs from the previous report; None, and stores nothing, if
        a report of the same start with this sequence number or a higher one is stored. `now_ms`: monotonic."""
        known = self._of.get(node_id)
        if known is not None and known.start == start and sequence <= known.sequence:
            return None
        held: dict[int, ReportedTask] = {}
        prepared: dict[int, ReportedTask] = {}
        fenced: dict[int, ReportedTask] = {}
        for one in holdings:
            (prepared if one.prepared else held if one.fenced_by is None else fenced)[one.task_id] = one
        same = known if known is not None and known.start == start else _Heard(start, 0, {}, {}, {}, {}, {})
        since_ms, moved_ms = {}, {}
        for one in held.values():
            key = one.task_id, one.task_epoch
            since_ms[key] = same.since_ms.get(key, now_ms)
            earlier = same.held.get(one.task_id)
            moves = earlier is None or earlier.progress_ts != one.progress_ts
            moved_ms[key] = now_ms if moves else same.moved_ms.get(key, now_ms)
            if now_ms - since_ms[key] >= MEASURING_MS:
                self._measured[one.task_id] = one.load
        self._of[node_id] = _Heard(start, sequence, held, prepared, since_ms, moved_ms, fenced)
        if known is None:
            return {*held, *prepared, *fenced}
        return _differing(known.held, held) | _differing(known.prepared, prepared) | _differing(known.fenced, fenced)

    def forget(self) -> None:
        """Forget all reports, because a new owner starts without any."""
        self._of.clear()
        self._measured.clear()

    def keep(self, task_ids: Container[int]) -> None:
        """Forget the measured loads of all tasks but these, because the others do not exist any more."""
        for task_id in [task_id for task_id in self._measured if task_id not in task_ids]:
            del self._measured[task_id]

    def has_reports_of(self, node_ids: Iterable[str]) -> bool:
        """Whether every one of these nodes has sent a report."""
        return all(node_id in self._of for node_id in node_ids)

    def placement(self, task: Task) -> Placement:
        """The placement of a task, from its row and the reports of its sorter and of the next one."""
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

    def claimed_by(self, task: Task) -> int | None:
        """The epoch under which another holder has claimed a task's manifests, if it is at or above the task's epoch in
        the database; else None. Such an epoch prevents the task's sorter from claiming. That happens after a restore of
        the database, which has forgotten newer epochs."""
        newest = self._of.get(task.sorter_node or "")
        one = None if newest is None else newest.fenced.get(task.task_id)
        if one is None or one.fenced_by is None or one.task_epoch != task.task_epoch:
            return None
        return one.fenced_by if one.fenced_by >= task.task_epoch else None

    def last_report(self, task: Task, now_ms: int) -> SorterReport:
        """The last report of a task's sorter about the task; NO_REPORT if the sorter has not reported the task. A
        report under another epoch than the task's counts only for its seal. `now_ms` is monotonic."""
        one = self._holding(task.sorter_node, task.task_id)
        if one is None:
            return NO_REPORT
        if one.task_epoch != task.task_epoch:  # a seal is final, whichever epoch reports it
            return SorterReport(sealed=one.sealed)
        newest, key = self._of[task.sorter_node or ""], (one.task_id, one.task_epoch)
        return SorterReport(
            held=not one.sealed,
            load=one.load,
            split_key=one.split_key,
            progress_ts=one.progress_ts,
            stop_at=one.stop_at,
            sealed=one.sealed,
            settled_ms=now_ms - newest.since_ms[key],
            still_ms=now_ms - newest.moved_ms[key],
        )

    def load(self, task: Task, now_ms: int) -> float:
        """The load of a task, in bytes per second, as its sorter measured it; 0 if no sorter has. While the sorter has
        held the task for less than MEASURING_MS, the result is at least the value that the previous sorter measured.
        `now_ms` is monotonic."""
        before = self._measured.get(task.task_id, 0.0)
        held = self._holding(task.sorter_node, task.task_id)
        if held is None:
            return before
        since_ms = self._of[task.sorter_node or ""].since_ms[held.task_id, held.task_epoch]
        return held.load if now_ms - since_ms >= MEASURING_MS else max(held.load, before)

    def _holding(self, node_id: str | None, task_id: int) -> ReportedTask | None:
        newest = self._of.get(node_id or "")
        return None if newest is None else newest.held.get(task_id)


def _differing(before: Mapping[int, ReportedTask], after: Mapping[int, ReportedTask]) -> set[int]:
    """The tasks whose placement may have changed between two reports. Changes of load and progress alone do not
    count."""
    return {
        task_id for task_id in before.keys() | after.keys() if _place(before.get(task_id)) != _place(after.get(task_id))
    }


def _place(one: ReportedTask | None) -> tuple[object, ...] | None:
    return None if one is None else (one.task_epoch, one.stop_at, one.sealed, one.fenced_by)
