"""How the memory allocators of processes that work on columns are told to keep what was freed, for a while.

Who works on columns frees arrays of megabytes and takes as many again; each page that went back to the kernel meanwhile
costs a fault when it is touched: a fifth of a sorter's processor time (docs/benchmarks.md, sorter-job). What is kept is
bounded by what the process had at its peak.

Read by an allocator when its process begins, so whoever starts one sets them; they name no secret and no path.
"""

from __future__ import annotations

KEEP_MS = 10_000

ENVIRON = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),  # glibc (numpy, Python): the heap, not a mapping for each array
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MIMALLOC_PURGE_DELAY": str(KEEP_MS),  # Arrow
    "_RJEM_MALLOC_CONF": f"dirty_decay_ms:{KEEP_MS},muzzy_decay_ms:{KEEP_MS}",  # Polars
}
