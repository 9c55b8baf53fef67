"""Cuts a window into pieces, one for each change file. Pure.

All changes of a window are known and sorted, so any commit_ts inside the window may be a watermark, and a piece ends
between two commit_ts. Only a commit_ts that is larger than a file by itself is cut by keys; then the last of its files
has the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tistream.logbackup.release import ReleaseFile
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import Window

BINS = 16  # bins of each shard for one file


@dataclass(frozen=True, slots=True)
class Limits:
    """The target size of one change file: rows, and bytes of keys and values before compression."""

    rows: int = 200_000
    bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Bin:
    """The number and the bytes of the changes of one shard with first <= commit_ts <= last. Repeated changes are
    counted each time."""

    first: int
    last: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The sizes of one shard's changes in the window, as bins in the order of commit_ts."""

    span: KeySpan
    bins: tuple[Bin, ...]


def whole(window: Window, index: int) -> tuple[ReleaseFile, ...]:
    """The whole window as one piece."""
    return (ReleaseFile(window.high, window.low, window.high, index),)


def pieces(window: Window, index: int, surveys: Sequence[Survey], limits: Limits) -> tuple[ReleaseFile, ...]:
    """Cut the window into pieces. `index` is the log index of the first piece; each watermark takes one index."""
    rows: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for one in (one for survey in surveys for one in survey.bins):
        rows[one.last] = rows.get(one.last, 0) + one.rows
        sizes[one.last] = sizes.get(one.last, 0) + one.bytes
    out: list[ReleaseFile] = []
    low = at = window.low
    held_rows = held_bytes = 0
    for ts in sorted(rows):
        full = held_rows + rows[ts] > limits.rows or held_bytes + sizes[ts] > limits.bytes
        if full and at > low:
            out.append(ReleaseFile(at, low, at, index + len({one.high for one in out})))
            low, held_rows, held_bytes = at, 0, 0
        held_rows, held_bytes, at = held_rows + rows[ts], held_bytes + sizes[ts], ts
        if held_rows > limits.rows or held_bytes > limits.bytes:
            out += _by_keys(Window(low, ts), index + len({one.high for one in out}), surveys, limits)
            low, held_rows, held_bytes = ts, 0, 0
    if low < window.high:
        out.append(ReleaseFile(window.high, low, window.high, index + len({one.high for one in out})))
    return tuple(out)


def _by_keys(window: Window, index: int, surveys: Sequence[Survey], limits: Limits) -> list[ReleaseFile]:
    """Cut a commit_ts that is larger than one file into several pieces, between shards, which are in key order."""
    starts: list[bytes] = [b""]
    rows = size = 0
    for survey in surveys:
        own = [one for one in survey.bins if window.overlaps(one.first, one.last)]
        more_rows, more_bytes = sum(one.rows for one in own), sum(one.bytes for one in own)
        if rows and (rows + more_rows > limits.rows or size + more_bytes > limits.bytes):
            starts.append(survey.span.start)
            rows = size = 0
        rows, size = rows + more_rows, size + more_bytes
    starts = starts[: window.high - window.low]  # each file has a ts of its own in the window
    if len(starts) == 1:
        return [ReleaseFile(window.high, window.low, window.high, index, span=WHOLE)]
    out = []
    for number, start in enumerate(starts):
        last = number == len(starts) - 1
        span = KeySpan(start, b"" if last else starts[number + 1])
        ts = window.high if last else window.low + 1 + number
        out.append(ReleaseFile(ts, window.low, window.high, index, last, span))
    return out
