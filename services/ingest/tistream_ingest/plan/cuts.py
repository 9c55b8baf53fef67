"""Divides the window (range of commit_ts) of a release into change files. Pure.

All changes of the window are known and sorted, so any commit_ts in it may be the watermark that ends a file. Only if
one commit_ts has more changes than fit into a file, they are divided by keys; then the last of its files has the
watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tistream.logbackup.release import ReleaseFile
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import Window

BINS = 16  # bins of each shard for one file


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The target size of one change file: rows, and bytes of keys and values before compression."""

    rows: int = 200_000
    bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Bin:
    """The number of a shard's changes with first <= commit_ts <= last, and their bytes. A change that the log repeats
    counts each time."""

    first: int
    last: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The sizes of one shard's changes in the window, as bins in the order of their commit_ts."""

    span: KeySpan
    bins: tuple[Bin, ...]


def whole(window: Window, index: int) -> tuple[ReleaseFile, ...]:
    """Make one change file of the whole window. `index` is the log index of its watermark."""
    return (ReleaseFile(window.high, window.low, window.high, index),)


def pieces(window: Window, index: int, surveys: Sequence[Survey], limits: FileLimits) -> tuple[ReleaseFile, ...]:
    """Divide the window into change files of about the size `limits`, in the order of their ts. `surveys` has the sizes
    of each shard's changes. `index` is the log index of the first file; each watermark takes one index."""
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


def _by_keys(window: Window, index: int, surveys: Sequence[Survey], limits: FileLimits) -> list[ReleaseFile]:
    """Divide the changes of one commit_ts, which are too many for one file, into several files by keys. The keys of a
    file begin where those of a shard begin; `surveys` are in key order."""
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
