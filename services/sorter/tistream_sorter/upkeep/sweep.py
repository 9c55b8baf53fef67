"""Decides when large pending parts, which ticks do not read, are examined for dead locks (docs/adr/0007). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tistream.format.manifest import UNMATCHED, PendingPart
from tistream_sorter.watermark.slice_history import SliceHistory

EVERY_MS = 10_000
BYTES_MAX = 8 << 20  # bytes of parts scanned in one tick; at least one part is scanned
LOOKS_MAX = 16  # parts considered in one tick
AGAIN_MS = 1_000  # pause after a part was considered and not scanned


@dataclass(slots=True)
class Sweeps:
    """Remembers when each part, identified by its key, was last examined, or first seen. The times are only in memory:
    after a restart every part waits until it is due again."""

    seen_ms: dict[str, int] = field(default_factory=dict)

    def due(self, parts: Sequence[PendingPart], history: SliceHistory, rows_small: int, now_ms: int) -> frozenset[str]:
        """Select the parts to examine in this tick, of the UNMATCHED ones with at least `rows_small` rows: those that
        were first seen or last examined EVERY_MS ago or earlier, the oldest first, if this tick's history may prove a
        lock in their span dead. Returns their keys; the parts have at most BYTES_MAX bytes together, or are one part.
        `now_ms`: monotonic."""
        large = [part for part in parts if part.kind == UNMATCHED and part.rows >= rows_small]
        self.seen_ms = {part.key: self.seen_ms.get(part.key, now_ms) for part in large}
        waiting = [part for part in large if now_ms - self.seen_ms[part.key] >= EVERY_MS]
        chosen: set[str] = set()
        size = 0
        for part in sorted(waiting, key=lambda part: (self.seen_ms[part.key], part.key))[:LOOKS_MAX]:
            if part.key in chosen:
                continue
            if not _may_end(part, history):
                self.seen_ms[part.key] = now_ms - EVERY_MS + AGAIN_MS
            elif not chosen or size + part.size <= BYTES_MAX:
                chosen.add(part.key)
                size += part.size
        return frozenset(chosen)

    def swept(self, keys: frozenset[str], now_ms: int) -> None:
        """Record that these parts were examined, and that the manifest with the result is committed. `now_ms`:
        monotonic."""
        self.seen_ms.update({key: now_ms for key in keys if key in self.seen_ms})


def _may_end(part: PendingPart, history: SliceHistory) -> bool:
    """Whether the history may prove a lock of the part dead: a watermark row connected in its span with a resolved_ts
    above the lowest start_ts of its locks. (A lock's floor is at or above its start_ts.)"""
    resolved_ts = history.table([part.span])["row_resolved_ts"].to_numpy()
    return bool((resolved_ts > part.start_ts_min).any())
