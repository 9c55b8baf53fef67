"""Keeps the watermarks in files low while a late lock lives: one that arrives with a start_ts below a resolved_ts that
TiKV may have had already. Pure.

The sorter drops a lock as dead once its region's watermark exceeds both the lock's start_ts and the watermark at the
lock's arrival (design.md 3). This relies on TiKV, which never raises its own resolved_ts past a live lock. But the
resolved_ts that TiKV reports may be lower than its own, because one message has the lowest of many regions. So after a
late lock the watermark stays, until TiKV reports more than its own resolved_ts can have been when the lock arrived. The
kernel `apply` records these locks.
"""

from __future__ import annotations

import numpy as np

from tistream.arrays import Int64s
from tistream.model.ts import MAX_TS
from tistream_agent.core import kernels as k


def reached_of(table: Int64s, slots: Int64s) -> Int64s:
    """The ts that a file may promise for the subscriptions in these slots: the resolved_ts that TiKV has reported or,
    if it is lower, the limit that a late lock sets."""
    resolved, hold, later = (table[row, slots] for row in (k.RESOLVED_TS, k.HOLD, k.NEXT_HOLD))
    held = np.minimum(np.where(hold == 0, MAX_TS, hold), np.where(later == 0, MAX_TS, later))
    return np.asarray(np.minimum(resolved, held), np.int64)


def lower_limits(table: Int64s, before_ts: int, issued_ts: int) -> None:
    """Lower the estimates of PD's clock in the table of subscriptions that are too high: those that were recorded
    before PD was asked for a timestamp. They are below `before_ts`, the estimate when it was asked. PD had not issued
    a timestamp above `issued_ts` then, and TiKV's resolved_ts are timestamps that PD has issued. A subscription with a
    resolved_ts above it is left as it is: there PD and TiKV contradict each other."""
    agrees = table[k.RECEIVED] <= issued_ts
    for row in (k.ABOVE, k.NEXT_ABOVE, k.HIGHEST):
        values = table[row]
        table[row] = np.where(agrees & (values < before_ts), np.minimum(values, issued_ts), values)
