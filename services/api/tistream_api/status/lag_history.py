"""Keeps the lags of every tenant over time in memory of a fixed size per tenant. No I/O; thread-safe."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tistream.concurrency import new_lock
from tistream.model.ids import TenantKey
from tistream.wire.api import LagSamples
from tistream_api.status.stage_lags import STAGES, UNKNOWN


class LagHistory:
    """The lags of every tenant at the last `size` sampling times. Each tenant takes `size` * 20 bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = new_lock()
        self._times: deque[int] = deque(maxlen=size)
        self._next = 0  # the ring's next index
        self._rings: dict[TenantKey, npt.NDArray[np.float32]] = {}

    def add(self, at_ms: int, lags: Mapping[TenantKey, Sequence[int]]) -> None:
        """Add a sample: for every tenant, the lag of each stage in ms. `at_ms`: Unix ms. Drops the history of tenants
        that the sample does not contain."""
        with self._lock:
            self._times.append(at_ms)
            for gone in self._rings.keys() - lags.keys():
                del self._rings[gone]
            for tenant, lag in lags.items():
                ring = self._rings.get(tenant)
                if ring is None:
                    ring = self._rings[tenant] = np.full((self._size, len(STAGES)), np.nan, np.float32)
                ring[self._next] = [np.nan if one == UNKNOWN else one / 1000 for one in lag]
            self._next = (self._next + 1) % self._size

    def of(self, tenant: TenantKey, since_ms: int) -> LagSamples:
        """The lag of a tenant since `since_ms`, oldest sample first: `at_ms` (Unix ms) and, for each stage, seconds
        behind the wall clock; null if unknown. Samples from before the tenant's first one are left out."""
        with self._lock:
            ring = self._rings.get(tenant)
            times = np.array(self._times, np.int64)
            if ring is None:
                rows = np.empty((0, len(STAGES)), np.float32)
                times = times[:0]
            else:
                oldest = (self._next - len(times)) % self._size
                rows = ring[(oldest + np.arange(len(times))) % self._size]
        known = ~np.isnan(rows).all(axis=1) & (times >= since_ms)
        first = int(np.argmax(known)) if known.any() else len(times)
        times, rows = times[first:], rows[first:]
        columns = {
            stage: [None if math.isnan(lag) else round(lag, 3) for lag in rows[:, place].tolist()]
            for place, stage in enumerate(STAGES)
        }
        return LagSamples(at_ms=[str(at_ms) for at_ms in times.tolist()], stages=columns)
