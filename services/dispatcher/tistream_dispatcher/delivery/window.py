"""Keeps the files that were read and that some task has not received yet, in the order in which they were read. Pure.

The memory is limited: while the window is full, no more files are read. So the slowest task of a tenant delays the
reading of this tenant, but not of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tistream.format.manifest import ChainPosition
from tistream.wire.file_batch import WATERMARKS, FileBatch, FileRef
from tistream_dispatcher.delivery.receivers import FilePlace, Receivers


@dataclass(frozen=True, slots=True)
class RoutedFile:
    """A file with the parts that each task of its tenant needs. `watermarks` is file_batch.WATERMARKS without the
    column `file`."""

    ref: FileRef
    watermarks: pa.Table

    @property
    def place(self) -> FilePlace:
        return FilePlace(self.ref.store_id, self.ref.chain_ts, self.ref.ts)

    @property
    def bytes(self) -> int:
        """The approximate size of the routed file in memory and on the wire, in bytes."""
        return int(self.watermarks.nbytes) + 256 + 128 * len(self.ref.groups)


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The limits of a window and of one batch, in files and in bytes."""

    window_files: int
    window_bytes: int
    batch_files: int
    batch_bytes: int


class FileWindow:
    """The files that were read and that some task may lack, in the order in which they were read."""

    def __init__(self, limits: WindowLimits) -> None:
        self._limits = limits
        self._files: list[RoutedFile] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._files)

    @property
    def full(self) -> bool:
        return len(self._files) >= self._limits.window_files or self._bytes >= self._limits.window_bytes

    def add(self, file: RoutedFile) -> None:
        """Append a file, which must be the next of its chain."""
        self._files.append(file)
        self._bytes += file.bytes

    def drop_store(self, store_id: int) -> None:
        """Drop a store's files, because they will be read again, here or by another dispatcher."""
        self._keep([file for file in self._files if file.ref.store_id != store_id])

    def drop_closed(self, store_id: int, open_chains: Iterable[ChainPosition]) -> None:
        """Drop the files of the store's closed chains: those that are not in `open_chains`."""
        still = {chain.first_ts for chain in open_chains}
        self._keep([file for file in self._files if file.ref.store_id != store_id or file.ref.chain_ts in still])

    def trim(self, receivers: Receivers) -> None:
        """Drop the files that no known task lacks."""
        tasks = list(receivers.received)
        self._keep([file for file in self._files if any(receivers.lacks(task, file.place) for task in tasks)])

    def _keep(self, files: list[RoutedFile]) -> None:
        self._files = files
        self._bytes = sum(file.bytes for file in files)

    def batch(self, tasks: Iterable[int], receivers: Receivers, stalled: set[int]) -> tuple[RoutedFile, ...]:
        """Select the oldest files that some of `tasks` lack, within the limits of a batch, which only a single file may
        exceed. They stay in the window. Files of `stalled` stores are left out."""
        wanted = list(tasks)
        out: list[RoutedFile] = []
        size = 0
        for file in self._files:
            if file.ref.store_id in stalled or not any(receivers.lacks(task, file.place) for task in wanted):
                continue
            size += file.bytes
            if out and (len(out) >= self._limits.batch_files or size > self._limits.batch_bytes):
                break
            out.append(file)
        return tuple(out)

    def must_reread(self, receivers: Receivers, store_id: int, taken: Iterable[ChainPosition]) -> bool:
        """Whether some task lacks a file that was read and is no longer in the window, so that the store must be read
        again. That happens if a task has lost a file that it had received. `taken`: the positions up to which the store
        was read."""
        first_prev: dict[int, int] = {}
        for file in self._files:
            if file.ref.store_id == store_id:
                first_prev.setdefault(file.ref.chain_ts, file.ref.prev_ts)
        for chain in taken:
            reach = first_prev.get(chain.first_ts, chain.at_ts)
            for task in receivers.received:
                at_ts = receivers.at(task, store_id, chain.first_ts)
                if at_ts is None and receivers.outlived(task, store_id, chain.first_ts):
                    continue
                if (at_ts or 0) < reach:
                    return True
        return False


def batch_for(
    route_version: int, files: Sequence[RoutedFile], tasks: Sequence[int], flushed_ts: int | None = None
) -> FileBatch:
    """Build the batch for one sorter, with the parts of the files that its tasks need. Every file lists every task,
    because a task's position advances even if the file has no rows for it. `flushed_ts`: the ts up to which all tasks
    of the tenant have flushed; None if it is unknown."""
    refs = [replace(file.ref, row_groups=_only(file.ref.row_groups, tasks)) for file in files]
    ids = pa.array(tasks, pa.int64())
    tables = []
    for number, file in enumerate(files):
        mine = pc.is_in(file.watermarks["task_id"], value_set=ids)
        rows = file.watermarks if pc.all(mine).as_py() else file.watermarks.filter(mine)
        tables.append(rows.add_column(0, WATERMARKS.field("file"), pa.repeat(pa.scalar(number, pa.int32()), len(rows))))
    return FileBatch(route_version, tuple(refs), pa.concat_tables(tables).cast(WATERMARKS), flushed_ts)


def _only(row_groups: Mapping[int, tuple[int, ...]], tasks: Sequence[int]) -> dict[int, tuple[int, ...]]:
    return {task: row_groups.get(task, ()) for task in tasks}
