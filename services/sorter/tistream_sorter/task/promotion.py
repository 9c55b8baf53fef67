"""Selects the SEALED pending parts whose commit_ts the window reaches. They have the form of segments already, so the
next manifest names them as segments (docs/adr/0007). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.format.manifest import SEALED, PendingPart
from tistream.format.segment import SegmentRef


def promoted(parts: Sequence[PendingPart], high: int) -> tuple[tuple[SegmentRef, ...], tuple[PendingPart, ...]]:
    """Divide the SEALED parts by the window's upper end `high`. Returns (the parts at or below it, as segments; the
    parts that stay pending). All rows of a SEALED part have one commit_ts, so no part is divided."""
    reached = [part for part in parts if part.kind == SEALED and part.commit_ts_min <= high]
    stays = tuple(part for part in parts if part.kind != SEALED or part.commit_ts_min > high)
    return tuple(SegmentRef(part.key, part.size, part.checksum, part.rows, part.row_groups) for part in reached), stays
