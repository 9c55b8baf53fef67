"""Byte ranges of an object, and how to fetch them in few requests."""

from __future__ import annotations

from collections.abc import Iterable

GAP_BYTES = 64 << 10  # a hole that costs less to read than another request does

ByteRange = tuple[int, int]  # (start, length)


def coalesce(ranges: Iterable[ByteRange], gap: int = GAP_BYTES) -> list[ByteRange]:
    """Merge ranges that touch, overlap, or lie at most `gap` bytes apart; empty ones go."""
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
