"""A queue of the change files that a task has received and no tick has processed yet. Pure.

The queue holds references, not contents, and only in memory. After a crash the dispatcher sends the files again, from
the position in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tistream.wire.file_batch import FileRef, RowGroupRef
from tistream_sorter.state.positions import Positions, follows, has_room, moved, received
from tistream_sorter.task.tick import TaskFile

PEEK_FILES = 512  # limits the history of slices that the kernel of one tick examines


@dataclass(slots=True)
class Inbox:
    """A queue of change files. It accepts a file only if that is the next one of its chain; the dispatcher sends
    refused files again. It returns the oldest files first, by ts, across stores."""

    positions: Positions  # the positions after every queued file
    files: list[TaskFile] = field(default_factory=list)
    # By store: the first file of a chain for which the store has no room.
    refused: dict[int, FileRef] = field(default_factory=dict)

    def offer(self, file: TaskFile) -> bool:
        """Queue `file` if it is the next of its chain. Returns whether it was queued. Not queued are repeated files,
        files ahead of their chain, and the first file of a chain above the limit. The dispatcher sends files from the
        last queued one on, so a file that was refused comes again."""
        if not follows(self.positions, file.ref):
            return False
        if not has_room(self.positions, file.ref):
            self.refused[file.ref.store_id] = file.ref
            return False
        self.refused.pop(file.ref.store_id, None)
        self.positions = moved(self.positions, file.ref)
        self.files.append(file)
        return True

    def peek(self, bytes_max: int, task_id: int) -> list[TaskFile]:
        """Sort the inbox, and return its oldest files: those whose row groups for the task fit in `bytes_max`, at most
        PEEK_FILES, and at least one unless the inbox is empty. They stay in it.

        Files are ordered by ts across stores. The watermark is that of the slowest store, so newer rows of the other
        stores would have to wait in pending parts.
        """
        self.files = _by_time(self.files)
        out: list[TaskFile] = []
        total = 0
        for file in self.files[:PEEK_FILES]:
            total += bytes_of(file, task_id)
            if out and total > bytes_max:
                break
            out.append(file)
        return out

    def crowded(self) -> list[FileRef]:
        """The first files of chains that were refused because their store has too many open chains, and that still have
        no room."""
        self.refused = {store: ref for store, ref in self.refused.items() if not has_room(self.positions, ref)}
        return list(self.refused.values())

    def committed(self, durable: Positions, flushed_ts: int) -> None:
        """Forget the chains that the newest manifest has dropped, because they are closed. `durable`: the manifest's
        positions. A chain with a queued file is kept: the task begins it when it applies the file, and its first file
        must not be queued again after that."""
        queued = {(file.ref.store_id, file.ref.chain_ts) for file in self.files}
        kept = received(self.positions, durable, flushed_ts)
        self.positions = {
            store: tuple(one for one in chains if one in kept[store] or (store, one.first_ts) in queued)
            for store, chains in self.positions.items()
        }

    def remove(self, count: int) -> None:
        """Remove the first `count` files that the last `peek` returned, because a manifest or the in-memory state
        covers them."""
        del self.files[:count]

    def forget(self, durable: Positions, keys: Iterable[str]) -> None:
        """Drop the files with these object `keys`, and the later files of their chains, so that the dispatcher sends
        them again. Other chains of the same store are kept, because a new chain ends a quarantine. `durable`: the
        positions to which their stores return."""
        bad = set(keys)
        stores = {file.ref.store_id for file in self.files if file.ref.key in bad}
        kept: list[TaskFile] = []
        held: set[tuple[int, int]] = set()
        for file in self.files:
            chain = (file.ref.store_id, file.ref.chain_ts)
            if file.ref.key in bad:
                held.add(chain)
            if chain not in held:
                kept.append(file)
        positions = {**self.positions, **{store: durable.get(store, ()) for store in stores}}
        self.files = []
        self.positions = {store: chains for store, chains in positions.items() if chains}
        for file in kept:
            if file.ref.store_id in stores:
                self.positions = moved(self.positions, file.ref)
            self.files.append(file)


def _by_time(files: list[TaskFile]) -> list[TaskFile]:
    """Sort files by ts, without changing the order within a store."""
    reached: dict[int, int] = {}
    times = []
    for file in files:
        store_id = file.ref.store_id
        reached[store_id] = max(reached.get(store_id, 0), file.ref.ts)
        times.append(reached[store_id])
    return [files[at] for at in sorted(range(len(files)), key=times.__getitem__)]


def groups_of(file: TaskFile, task_id: int) -> list[RowGroupRef]:
    """The row groups of the file that the task must read."""
    wanted = file.ref.row_groups.get(task_id, ())
    by_index = {group.index: group for group in file.ref.groups} if wanted else {}
    return [by_index[index] for index in wanted]


def bytes_of(file: TaskFile, task_id: int) -> int:
    """The bytes of the row groups of the file that the task must read."""
    return sum(group.length for group in groups_of(file, task_id))
