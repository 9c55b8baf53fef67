"""Converts SEALED pending parts to segments when the window passes them (docs/adr/0007). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.format.manifest import SEALED, PendingPart
from tistream.format.segment import SegmentRef


def promoted(parts: Sequence[PendingPart], high: int) -> tuple[tuple[SegmentRef, ...], tuple[PendingPart, ...]]:
    """Divide the SEALED parts by the window. Returns the parts that the window reaches, as segments, and the parts that
    stay pending. A SEALED part has one commit_ts, so the window reaches it completely or not at all."""
    reached = [part for part in parts if part.kind == SEALED and part.commit_ts_min <= high]
    stays = tuple(part for part in parts if part.kind != SEALED or part.commit_ts_min > high)
    return tuple(SegmentRef(part.key, part.size, part.checksum, part.rows, part.row_groups) for part in reached), stays
