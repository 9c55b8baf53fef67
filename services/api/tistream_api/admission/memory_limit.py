"""How much memory this process may have, and giving back what it does not use."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pyarrow as pa

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2, version 1
PULLS_PART = 2  # of all memory; the rest is for caches, histories, and the interpreter


def pull_bytes(setting: int) -> int:
    """What pulls may hold together: as the setting says; 0: a half of what the process may have."""
    return setting or memory_limit() // PULLS_PART


def memory_limit() -> int:
    """Bytes: the container's limit, or else the machine's memory."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *(limit for path in _CGROUPS if (limit := _limit_in(Path(path))) is not None)])


def _limit_in(path: Path) -> int | None:
    """None: there is no such file, or no limit in it ("max", or a number beyond any memory)."""
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def give_back() -> None:
    """What was freed, by the allocators that can be told to: glibc keeps it in as many arenas as there were threads."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own
    if trim is not None:
        trim(0)
