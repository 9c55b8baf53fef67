"""What files may promise of subscriptions while locks live that came late. Pure.

The sorter takes a lock for dead once its region's resolved_ts is above the lock's start_ts and what was promised when
it came (design.md 3): TiKV never raises its own resolved_ts past a lock that is there. What TiKV reports may be
lower than that, because one message has the lowest of many regions. So a lock below what TiKV may have held when it
came holds the promise, until TiKV has reported more than that. The kernel `apply` notes these locks.
"""

from __future__ import annotations

import numpy as np

from tistream.arrays import Int64s
from tistream.model.ts import MAX_TS
from tistream_agent.core import kernels as k


def reached_of(table: Int64s, slots: Int64s) -> Int64s:
    """The resolved_ts that TiKV has reported of the subscriptions in these slots, or what a late lock holds."""
    resolved, hold, later = (table[row, slots] for row in (k.RESOLVED_TS, k.HOLD, k.NEXT_HOLD))
    held = np.minimum(np.where(hold == 0, MAX_TS, hold), np.where(later == 0, MAX_TS, later))
    return np.asarray(np.minimum(resolved, held), np.int64)
