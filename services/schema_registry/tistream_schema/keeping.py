"""Decides when the schema log is maintained although no schema has changed: when its progress or a base is written, and
old objects are deleted. Pure.

The sorters decide how much history may be forgotten: rows at or below a task's retained_ts may be gone from the pool,
and a request for a ts below the highest retained_ts is answered with 410. The registry forgets no history above the
lowest retained_ts of the tasks with the schema's keys (docs/adr/0009).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogKeepingRules:
    """The limits of the schema log's maintenance; see SchemaSettings. Durations are in milliseconds."""

    quiet_segments: int = 256
    quiet_ms: int = 3_600_000
    base_objects: int = 256
    grace_ms: int = 3_600_000


class LogKeeper:
    """Decides which writes of the schema log are due. Times are monotonic milliseconds."""

    def __init__(self, keeping: LogKeepingRules, now_ms: int) -> None:
        self._keeping = keeping
        self._written_ms = now_ms
        self._objects = 0  # objects since the newest base, or since the first object
        self._segments = 0  # segments read since the last object
        self._floor = 0  # the highest floor that was read
        # (floor, when it was first read), if objects below it are not deleted yet
        self._floors: deque[tuple[int, int]] = deque()

    def wrote(self, now_ms: int, *, base: bool) -> None:
        """Record that an object was added to the log. `base`: it was a base."""
        self._written_ms, self._segments = now_ms, 0
        self._objects = 1 if base else self._objects + 1

    def segments_read(self, segments: int) -> None:
        """Record that this number of further segments of the pool has been read since the last call."""
        self._segments += segments

    def progress_due(self, now_ms: int) -> bool:
        """Whether to write the resolved_ts although the schema has not changed. Without that, a restart would have to
        read many rows again, and sorters would have to keep these rows."""
        if self._segments >= self._keeping.quiet_segments:
            return True
        return self._segments > 0 and now_ms - self._written_ms >= self._keeping.quiet_ms

    def base_due(self, base_ts: int, known_from_ts: int) -> bool:
        """Whether to write a base that restates the log as of `base_ts`. `known_from_ts`: the base_ts of the current
        history."""
        return self._objects > self._keeping.base_objects and base_ts > known_from_ts

    def collection_due(self, floor: int, now_ms: int) -> int:
        """Remember `floor`, the present floor of the log, and return the floor below which objects must be deleted now;
        0: no deletion is due. A floor is due `grace_ms` after it was first seen, so that running readers can finish,
        even if the floor has risen in the meantime."""
        if floor > self._floor:
            self._floor = floor
            self._floors.append((floor, now_ms))
        return max((one for one, found_ms in self._floors if now_ms - found_ms >= self._keeping.grace_ms), default=0)

    def collected(self, below: int) -> None:
        """Record that all objects below `below` were deleted."""
        while self._floors and self._floors[0][0] <= below:
            self._floors.popleft()


def newest_base_ts(retained_ts: Iterable[int], durable_ts: int) -> int:
    """The newest ts as of which the log may be restated. `durable_ts`: the log has the history up to it. `retained_ts`:
    of each task with schema keys, the ts up to which it has dropped, or may drop, its rows."""
    return min([durable_ts, *retained_ts])
