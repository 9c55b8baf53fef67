"""Environment variables that make the memory allocators keep freed memory for a while, in processes that work on Arrow
columns.

Such a process frees arrays of megabytes and allocates similar ones again. If the allocator returns the memory to the
kernel in between, each page costs a page fault when it is used again. That took a fifth of a sorter's processor time
(docs/benchmarks.md, sorter-job). The kept memory is bounded by the process's peak.

An allocator reads the variables when its process starts, so the parent process sets them. They contain no secret and no
path.
"""

from __future__ import annotations

KEEP_MS = 10_000

ENVIRON = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),  # glibc (numpy, Python): use the heap, not a mapping for each array
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MIMALLOC_PURGE_DELAY": str(KEEP_MS),  # Arrow
    "_RJEM_MALLOC_CONF": f"dirty_decay_ms:{KEEP_MS},muzzy_decay_ms:{KEEP_MS}",  # Polars
}
