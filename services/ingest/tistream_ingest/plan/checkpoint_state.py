"""Computes the parts of the status of a source (a log backup that is read) that describe its progress. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from tistream.logbackup.prefix import CHECKPOINTS
from tistream.logbackup.release import STORE_ID
from tistream.model.ts import physical_ms
from tistream.wire.sorter import Hold

FLUSH_MS = 180_000  # log-backup.max-flush-interval by default, while no flush was seen
STANDS_MS_MIN = 60_000
NO_CHECKPOINT = "log backup has written no checkpoint yet: `br log status` shows whether it runs"
GC_MS = 24 * 3_600_000  # how long TiDB holds back garbage collection for a log backup that is paused


def flush_interval_ms(flushes: Mapping[int, Sequence[int]]) -> float | None:
    """The median interval between two successive flushes of one store, taken over all stores. `flushes`: by store, the
    times of its flushes in ms, in any order. None if no store has two flushes."""
    distances = [after - before for times in flushes.values() for before, after in pairwise(sorted(times))]
    return float(median(distances)) if distances else None


def hold_of_checkpoint(checkpoint_ts: int, since_ms: int, flushes: Mapping[int, Sequence[int]], now_ms: int) -> Hold:
    """The hold (the reason for missing progress) of a source that has released everything up to the log's checkpoint.
    since_ms: when this process last saw the checkpoint rise. flushes: by store, the times in ms of its last flushes.
    since_ms and now_ms are Unix ms. The hold names the checkpoint object only if there is no checkpoint, or if it is
    older than two flush intervals and STANDS_MS_MIN, because a hold without an object is shown only for a tenant that
    is late."""
    interval = flush_interval_ms(flushes) or FLUSH_MS
    limit = max(2 * interval, STANDS_MS_MIN)
    age = now_ms - physical_ms(checkpoint_ts)
    if not checkpoint_ts:
        return Hold(stage="push", object=CHECKPOINTS, reason=NO_CHECKPOINT)
    if age <= limit:
        reason = f"log backup makes changes visible at each flush, some {interval / 1000:g} s apart"
        return Hold(stage="push", store_id=str(STORE_ID), reason=reason)
    if now_ms - since_ms <= limit and since_ms > physical_ms(checkpoint_ts) + limit:
        return Hold(stage="push", object=CHECKPOINTS, reason=f"the checkpoint of log backup is {age // 1000} s behind")
    at = datetime.fromtimestamp(physical_ms(checkpoint_ts) / 1000, UTC).isoformat(timespec="seconds")
    reason = f"log backup has not moved since {at}: `br log status` shows why"
    if age > GC_MS:
        reason += (
            "; that is more than 24 hours, so garbage collection may have passed it: if `br log resume` fails, the "
            "tenant must be backfilled"
        )
    return Hold(stage="push", object=CHECKPOINTS, reason=reason)


def runs_here(source: tuple[str, str, str], own_url: str, urls: Sequence[str]) -> bool:
    """Whether this process must run a source or backfill (cluster, tenant, id). Of the running processes, whose URLs
    are `urls`, the one with the highest hash of `source` and URL runs it. This only avoids duplicate work: if several
    processes run it, conditional puts decide which of them writes each object."""
    return own_url in urls and max(urls, key=lambda url: _rank(source, url)) == own_url


def _rank(source: tuple[str, str, str], url: str) -> bytes:
    return hashlib.blake2b("\0".join((*source, url)).encode(), digest_size=8).digest()
