"""When the log is written to though no schema has changed: progress, a base, what is deleted. Pure.

What may be forgotten is up to the sorters: rows at or below a task's retained_ts may be gone from the pool, and whoever
asks for a time below the highest one is told 410. The registry forgets nothing above the lowest one of the tasks with
the schema's keys (docs/adr/0009).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keeping:
    """From the settings. Durations in milliseconds."""

    quiet_segments: int = 256
    quiet_ms: int = 3_600_000
    base_objects: int = 256
    grace_ms: int = 3_600_000


class LogKeeper:
    """What of the log is due. Monotonic milliseconds."""

    def __init__(self, keeping: Keeping, now_ms: int) -> None:
        self._keeping = keeping
        self._written_ms = now_ms
        self._objects = 0  # since the newest base, or since the first
        self._segments = 0  # looked at since the last object
        self._floor = 0  # the highest one found
        self._floors: deque[tuple[int, int]] = deque()  # (floor, when it was found): what is below is still there

    def wrote(self, now_ms: int, *, base: bool) -> None:
        """The log has one more object."""
        self._written_ms, self._segments = now_ms, 0
        self._objects = 1 if base else self._objects + 1

    def looked_at(self, segments: int) -> None:
        """So many segments of the pool were read."""
        self._segments += segments

    def progress_due(self, now_ms: int) -> bool:
        """Whether how far the schema is known should be kept though it has not changed: a start would have to read
        much again, and sorters keep the rows until it is."""
        if self._segments >= self._keeping.quiet_segments:
            return True
        return self._segments > 0 and now_ms - self._written_ms >= self._keeping.quiet_ms

    def base_due(self, base_ts: int, known_from_ts: int) -> bool:
        """Whether the log should be restated as of base_ts, of which it is known from `known_from_ts` on."""
        return self._objects > self._keeping.base_objects and base_ts > known_from_ts

    def collection_due(self, floor: int, now_ms: int) -> int:
        """Below which number objects should be deleted; 0: none are. Each floor has its turn once, a while after it was
        found there, in which readers that are on their way come to their end. Meanwhile it may have risen again."""
        if floor > self._floor:
            self._floor = floor
            self._floors.append((floor, now_ms))
        return max((one for one, found_ms in self._floors if now_ms - found_ms >= self._keeping.grace_ms), default=0)

    def collected(self, below: int) -> None:
        """They are."""
        while self._floors and self._floors[0][0] <= below:
            self._floors.popleft()


def newest_base_ts(retained_ts: Iterable[int], durable_ts: int) -> int:
    """As of when the log may be restated: what each task with the schema's keys has let go of, and is durable."""
    return min([durable_ts, *retained_ts])
