"""Decides which parts of a file each task needs: row groups by the bounds of their keys, and watermarks, clipped to the
task's span. Pure.

A tenant's tasks are sorted and cover the key space without overlap, so a key interval overlaps consecutive tasks. These
are found for all watermark rows at once, with one comparison of a whole column for each boundary between tasks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tistream.model.span import KeySpan
from tistream.wire import file_batch

_ROUTED = pa.schema([column for column in file_batch.WATERMARKS if column.name != "file"])


class KeyedGroup(Protocol):
    """A row group, with the lowest and highest key in it; None if the file has no statistics of it."""

    @property
    def index(self) -> int: ...
    @property
    def key_min(self) -> bytes | None: ...
    @property
    def key_max(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """A task and its span of keys."""

    task_id: int
    span: KeySpan


class Router:
    """Decides which parts of a file each task of one tenant needs."""

    def __init__(self, tasks: Sequence[TaskSpan]) -> None:
        """`tasks` are in key order and cover the key space. Raises ValueError if they do not."""
        if not tasks or tasks[0].span.start or tasks[-1].span.end:
            raise ValueError("the tasks do not cover the key space")
        if any(left.span.end != right.span.start for left, right in pairwise(tasks)):
            raise ValueError("the tasks leave gaps or overlap")
        self.task_ids = tuple(task.task_id for task in tasks)
        self._bounds = [task.span.start for task in tasks[1:]]
        self._ids = np.array(self.task_ids, np.int64)
        bounds = [b"", *self._bounds, b""]
        self._starts = pa.array(bounds[:-1], pa.binary())
        self._ends = pa.array(bounds[1:], pa.binary())

    def row_groups(self, groups: Iterable[KeyedGroup]) -> dict[int, tuple[int, ...]]:
        """For each task, the indexes of the row groups that may have its keys. Tasks without such row groups are left
        out."""
        found: dict[int, list[int]] = {}
        for group in groups:
            for task_id in self._touched(group):
                found.setdefault(task_id, []).append(group.index)
        return {task_id: tuple(indexes) for task_id, indexes in found.items()}

    def _touched(self, group: KeyedGroup) -> tuple[int, ...]:
        if group.key_min is None or group.key_max is None:
            return self.task_ids
        first = bisect_right(self._bounds, group.key_min)
        last = bisect_right(self._bounds, group.key_max)
        return self.task_ids[first : last + 1]

    def watermarks(self, rows: pa.Table) -> pa.Table:
        """Divide watermark rows (change_rows.WATERMARKS) among the tasks. Returns file_batch.WATERMARKS without the
        column `file`: for each row one copy for each task that its span overlaps, clipped to the task, in the order of
        the input."""
        first, last = self._runs(rows)
        if np.array_equal(first, last):  # nothing to clip, nothing to copy
            return rows.append_column(_ROUTED.field("task_id"), pa.array(self._ids[first])).select(_ROUTED.names)
        counts = last - first + 1
        row = np.repeat(np.arange(rows.num_rows), counts)
        # 0, 1, 2 … inside each sequence of tasks
        step = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
        task = np.repeat(first, counts) + step
        taken = rows.take(pa.array(row))
        start = _where(step > 0, self._starts.take(pa.array(task)), taken["start_key"])
        cut_right = task < np.repeat(last, counts)
        end = _where(cut_right, self._ends.take(pa.array(task)), taken["end_key"])
        columns = {**{name: taken[name] for name in taken.column_names}, "start_key": start, "end_key": end}
        columns["task_id"] = pa.array(self._ids[task], pa.int64())
        return pa.table([columns[name] for name in _ROUTED.names], schema=_ROUTED)

    def _runs(self, rows: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For each row, the positions of the first and the last task that its span overlaps."""
        count = rows.num_rows
        first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
        start, end = rows["start_key"], rows["end_key"]
        for bound in self._bounds:
            key = pa.scalar(bound, pa.binary())
            first += pc.greater_equal(start, key).to_numpy()
            last += pc.greater(end, key).to_numpy()
        unbounded = pc.equal(pc.binary_length(end), 0).to_numpy()
        last[unbounded] = len(self._bounds)
        return first, last


def _where(condition: npt.NDArray[np.bool_], yes: pa.Array, no: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pa.array(condition), yes, no)
