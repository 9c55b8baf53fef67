"""Which objects of backfills that have ended are garbage. Pure.

Manifests name the runs that tasks have made of chunks, never the chunks. So only a backfill that runs needs them. The
age leaves time to jobs that began before its end.
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
    milliseconds. An object of a store without a clock has 0: its age is not known, and it stays."""
    return [key for key, at_ms in modified_ms.items() if at_ms and at_ms + AGE_MS <= now_ms]
