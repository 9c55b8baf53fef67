"""Finds the live segments, of a task or of a tenant, that may hold rows of a window. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tistream.arrays import Int64s
from tistream.format.segment import SegmentRef
from tistream.model.ts import Window


class SegmentIndex:
    """The live segments, with arrays of their commit_ts bounds. It finds the segments of a window without looking at
    every segment."""

    def __init__(self) -> None:
        self._segments: tuple[SegmentRef, ...] = ()
        self._lows: Int64s = np.empty(0, np.int64)
        self._highs: Int64s = np.empty(0, np.int64)
        self._rows: Int64s = np.empty(0, np.int64)

    def update(self, segments: tuple[SegmentRef, ...]) -> None:
        """Replace the live segments. This costs little if segments were only added at the end."""
        if segments is self._segments:
            return
        known = len(self._segments)
        if segments[:known] != self._segments:
            known = 0
        new = segments[known:]
        lows = np.array([segment.commit_ts_min for segment in new], np.int64)
        highs = np.array([segment.commit_ts_max for segment in new], np.int64)
        self._lows = np.concatenate([self._lows[:known], lows])
        self._highs = np.concatenate([self._highs[:known], highs])
        self._rows = np.concatenate([self._rows[:known], np.array([segment.rows for segment in new], np.int64)])
        self._segments = segments

    @property
    def segments(self) -> tuple[SegmentRef, ...]:
        """The live segments."""
        return self._segments

    def overlapping(self, window: Window) -> list[SegmentRef]:
        """The live segments that may hold rows of the window, in the order of `segments`."""
        return [self._segments[at] for at in self._fit(window)]

    def beginnings(self, window: Window) -> tuple[Int64s, Int64s]:
        """For each segment that `overlapping` returns, in the same order: (the lowest commit_ts, the number of
        rows)."""
        fit = self._fit(window)
        return self._lows[fit], self._rows[fit]

    def _fit(self, window: Window) -> npt.NDArray[np.intp]:
        return np.flatnonzero((self._lows <= window.high) & (self._highs > window.low))
