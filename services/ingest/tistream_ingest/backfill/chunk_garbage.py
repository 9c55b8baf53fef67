"""Decides which objects of ended backfills are garbage. Pure.

Tasks convert chunks (all rows of a span of keys as of one ts) to runs of their version index, and manifests name these
runs, never the chunks. So only a running backfill needs its chunks. Objects are kept for AGE_MS after the end, because
jobs that began before the end may still use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tistream.wire.bulk.backfills import BackfillRow

AGE_MS = 24 * 3_600_000


def collectable(rows: Iterable[BackfillRow], now_ms: int) -> list[BackfillRow]:
    """The backfills that ended at least AGE_MS ago."""
    return [
        row for row in rows if row.state != "running" and row.ended_ms is not None and row.ended_ms + AGE_MS <= now_ms
    ]


def garbage(modified_ms: Mapping[str, int], now_ms: int) -> list[str]:
    """The keys of the objects that were written at least AGE_MS ago. `modified_ms`: when each key was written, in Unix
    milliseconds. An object store without a clock states 0: the age is not known, and the object is kept."""
    return [key for key, at_ms in modified_ms.items() if at_ms and at_ms + AGE_MS <= now_ms]
