"""Which objects of backfills that have ended are garbage. Pure.

Manifests name the runs that tasks have made of chunks, never the chunks. So only a backfill that runs needs them. The
age leaves time to jobs that began before its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from tistream.wire.bulk.backfills import BackfillRow

AGE_MS = 24 * 3_600_000


def collectable(rows: Iterable[BackfillRow], now_ms: int) -> list[BackfillRow]:
    """The backfills that ended at least AGE_MS ago."""
    return [
        row for row in rows if row.state != "running" and row.ended_ms is not None and row.ended_ms + AGE_MS <= now_ms
    ]


def garbage(objects: Iterable[tuple[str, int]], now_ms: int) -> list[str]:
    """Of objects as (key, modified_ms), the keys of those that were written at least AGE_MS ago. Those of a store
    without a clock have no age, and stay."""
    return [key for key, modified_ms in objects if modified_ms and modified_ms + AGE_MS <= now_ms]
