"""What a tree of processes costs, as /proc tells it: processor time and memory of a process and all its descendants."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    cpu_ticks: int  # its own and that of its children that have ended


def tree(root: int, without: frozenset[int] = frozenset()) -> set[int]:
    """`root` and its descendants, without the trees of `without`."""
    children: dict[int, list[int]] = {}
    for pid, process in _processes().items():
        children.setdefault(process.parent, []).append(pid)
    found, open_ = set(), [root]
    while open_:
        pid = open_.pop()
        if pid not in without:
            found.add(pid)
            open_ += children.get(pid, [])
    return found


def cpu_seconds(root: int, without: frozenset[int] = frozenset()) -> float:
    """Processor time that the tree has used so far."""
    processes = _processes()
    return sum(processes[pid].cpu_ticks for pid in tree(root, without) if pid in processes) / TICKS


def memory_bytes(root: int, without: frozenset[int] = frozenset()) -> int:
    """Anonymous memory that the tree has in RAM. Pages that a fork shares are counted in each process."""
    return sum(_anonymous(pid) for pid in tree(root, without))


def _processes() -> dict[int, _Process]:
    out = {}
    for entry in os.listdir(PROC):
        if entry.isdigit():
            try:
                fields = (PROC / entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended in between
                continue
            out[int(entry)] = _Process(int(fields[1]), sum(map(int, fields[11:15])))
    return out


def _anonymous(pid: int) -> int:
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith(("RssAnon", "RssShmem"))]
    return sum(map(int, sizes)) << 10


class PeakMemory:
    """`with PeakMemory(pid) as peak: …`; afterwards `peak.bytes` is the most that was seen."""

    def __init__(self, root: int, without: frozenset[int] = frozenset()) -> None:
        self.bytes = 0
        self._root, self._without = root, without
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(EVERY_S):
            self.bytes = max(self.bytes, memory_bytes(self._root, self._without))

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.bytes = max(self.bytes, memory_bytes(self._root, self._without))
