"""Sync points: timestamps at which a sink records that it contains all events at or below that ts, and none above.
Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.ts import from_physical_ms, physical_ms
from tistream.read.cursor import Place, Position


@dataclass(frozen=True, slots=True)
class SyncPoints:
    """Sync points at the multiples of `every_ms`, counted from the start of 1970."""

    every_ms: int

    def after(self, ts: int) -> int:
        """The ts of the first sync point above `ts`."""
        return from_physical_ms((physical_ms(ts) // self.every_ms + 1) * self.every_ms)

    def due(self, at: Position) -> bool:
        """Whether the mark of a sync point must be sent now: a shard at this position has sent all events up to the
        point, and not yet its mark."""
        return at.place is Place.DONE and self.after(at.commit_ts - 1) == at.commit_ts


def passed(ts: int) -> Position:
    """The position of a shard that has sent the mark of the sync point `ts`: before every event above `ts`."""
    return Position(ts + 1, Place.ROW)


@dataclass(frozen=True, slots=True)
class SyncMark:
    """The mark that a sink writes at the sync point `ts`: implements Mark."""

    ts: int

    @property
    def size(self) -> int:
        """Return 0: this mark adds no bytes of messages (implements Mark.size)."""
        return 0

    @property
    def content(self) -> None:
        """Return None: this mark is not a message (implements Mark.content)."""
