"""Merges byte ranges of an object, so that few requests fetch them."""

from __future__ import annotations

from collections.abc import Iterable

GAP_BYTES = 64 << 10  # reading a gap of up to this size costs less than another request

ByteRange = tuple[int, int]  # (start, length)


def coalesce(ranges: Iterable[ByteRange], gap: int = GAP_BYTES) -> list[ByteRange]:
    """Merge ranges that touch, overlap, or are at most `gap` bytes apart. Empty ranges are dropped."""
    out: list[ByteRange] = []
    for start, length in sorted(ranges):
        if not length:
            continue
        if out and start <= out[-1][0] + out[-1][1] + gap:
            first, held = out[-1]
            out[-1] = (first, max(held, start + length - first))
        else:
            out.append((start, length))
    return out
