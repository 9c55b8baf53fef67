"""Finds how much memory this process may use, and returns unused memory to the system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pyarrow as pa

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2, version 1
PULLS_PART = 2  # pulls get 1/2 of the memory; the rest is for caches, histories and the interpreter


def pull_bytes(setting: int) -> int:
    """The memory budget of all pulls, in bytes: the setting, or if that is 0 half of the process's memory."""
    return setting or memory_limit() // PULLS_PART


def memory_limit() -> int:
    """Memory that the process may use, in bytes: the container's limit, or the machine's memory if that is lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *(limit for path in _CGROUPS if (limit := _limit_in(Path(path))) is not None)])


def _limit_in(path: Path) -> int | None:
    """Read a cgroup's memory limit in bytes; None if the file does not exist or has no limit ("max")."""
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def give_back() -> None:
    """Let the allocators return freed memory to the system. glibc keeps it in an arena for each thread."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)
