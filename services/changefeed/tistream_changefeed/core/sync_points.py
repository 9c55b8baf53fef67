"""Sync points: timestamps at which a sink has all events at or below, and none above, and says so. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.ts import from_physical_ms, physical_ms
from tistream.read.cursor import Place, Position


@dataclass(frozen=True, slots=True)
class SyncPoints:
    """Sync points at the multiples of `every_ms`, since 1970."""

    every_ms: int

    def after(self, ts: int) -> int:
        """The ts of the first sync point above `ts`."""
        return from_physical_ms((physical_ms(ts) // self.every_ms + 1) * self.every_ms)

    def due(self, at: Position) -> bool:
        """Whether a shard at this position has sent all events up to a sync point, and has not passed its mark yet."""
        return at.place is Place.DONE and self.after(at.commit_ts - 1) == at.commit_ts


def passed(ts: int) -> Position:
    """The position after the mark of a sync point: before every event above it."""
    return Position(ts + 1, Place.ROW)


@dataclass(frozen=True, slots=True)
class SyncMark:
    """The mark of a sync point: implements Mark."""

    ts: int

    @property
    def size(self) -> int:
        """Implement Mark.size."""
        return 0

    @property
    def content(self) -> None:
        """Implement Mark.content: it is no message."""
