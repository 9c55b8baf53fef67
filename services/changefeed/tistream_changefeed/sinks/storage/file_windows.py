"""Decides when the rows of a feed into files are flushed. Pure.

A window of rows ends at a multiple of the flush interval, counted in the time of commits, at a DDL, or at the end of
the feed. So the files of a window depend only on its rows: a worker that takes over writes the same files again. The
end of the next window is stored with the progress. It may be several intervals away if the feed is late, so that it
catches up in larger files. If the tenant does not advance to it, an earlier end is stored before the rows are flushed.
"""

from __future__ import annotations

from dataclasses import dataclass

_PHYSICAL_SHIFT = 18  # bits of a TSO below its milliseconds
_LATE = 8  # a window of several intervals spans at most the lag divided by this number
_PATIENCE = 2  # in flush intervals
_LATE_MS = 60_000  # the longest window of several intervals


@dataclass(frozen=True, slots=True)
class FileWindows:
    """The windows of a feed: ranges of commit_ts whose rows are flushed into files together. `interval_ms` is the flush
    interval. `end_ts` is the end of the feed, None if it has none."""

    interval_ms: int
    end_ts: int | None = None

    def interval_end(self, ts: int) -> int:
        """The end of the interval that contains a ts, inclusive."""
        end = (max(ts - 1, 0) // self._span + 1) * self._span
        return end if self.end_ts is None else min(end, self.end_ts)

    def end(self, first_ts: int, window_end: int) -> int:
        """The end (inclusive ts) of the window whose first row has the commit_ts `first_ts`. `window_end` is the end
        that was stored with the progress; it counts unless the row is above it."""
        return self.interval_end(first_ts) if first_ts > window_end else window_end

    def next_end(self, at_ts: int, now_ms: int) -> int:
        """Choose the end (inclusive ts) of the window that follows the progress `at_ts`. The caller stores it with that
        progress. A feed that is late gets a window of several intervals. `now_ms`: Unix time."""
        lag_ms = now_ms - (at_ts >> _PHYSICAL_SHIFT)
        most = max(1, _LATE_MS // self.interval_ms)
        intervals = min(max(1, lag_ms // self.interval_ms // _LATE), most)
        return self.interval_end(at_ts + 1 + (intervals - 1) * self._span)

    @property
    def patience_ms(self) -> int:
        """How long rows wait for the end of their window before it is moved to the last row that can be read."""
        return _PATIENCE * self.interval_ms

    @property
    def _span(self) -> int:
        """The flush interval as a difference of TSOs."""
        return self.interval_ms << _PHYSICAL_SHIFT
