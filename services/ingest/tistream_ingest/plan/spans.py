"""Divides the keys of a release (one step of reading a log backup) into spans of about equal work, one for each shard.
Pure.

Where they are cut does not change what is written: each shard reads, joins and sorts rows of its span, and a file has
the rows of all shards. If a slice (a byte range of the log) has keys of two spans, both shards read it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tistream.logbackup.metadata import Slice
from tistream.model.span import WHOLE, KeySpan

POINT = 8 * 25  # bits after the point of a density: more than a number has, so that no density rounds to 0
NUMBER_BYTES = 24  # of a key; 11 of table and kind, then the handle or the first bytes of a clustered key


def spans(slices: Sequence[Slice], bytes_each: int) -> list[KeySpan]:
    """Divide all keys into spans, each with about `bytes_each` unpacked bytes of slices. The bytes of a slice are
    assumed to be spread evenly between its smallest and largest key."""
    cuts = [_key(at) for at in _cuts([(_number(one.low), _number(one.high), one.plain) for one in slices], bytes_each)]
    bounds = [b"", *sorted(set(cuts) - {b""}), b""]
    return [KeySpan(start, end) for start, end in pairwise(bounds)] if len(bounds) > 2 else [WHOLE]


def shared_out(slices: Iterable[Slice], cut: Sequence[KeySpan]) -> list[tuple[Slice, ...]]:
    """For each span of `cut`, the slices that may hold keys of it."""
    starts = [span.start for span in cut]
    out: list[list[Slice]] = [[] for _ in cut]
    for one in slices:
        for at in range(bisect_right(starts, one.low) - 1, bisect_right(starts, one.high)):
            out[at].append(one)
    return [tuple(found) for found in out]


def _cuts(weights: Sequence[tuple[int, int, int]], each: int) -> list[int]:
    """The positions at which the sum of weights, from the lowest number on, reaches each multiple of `each`. Each
    weight is spread evenly over its range of numbers. Sums are fixed-point integers, so that what is added at the
    beginning of a range and subtracted at its end cancels exactly."""
    each <<= POINT
    changes: dict[int, int] = {}
    for low, high, weight in weights:
        density = (weight << POINT) // (high - low + 1)
        changes[low] = changes.get(low, 0) + density
        changes[high + 1] = changes.get(high + 1, 0) - density
    out: list[int] = []
    density = held = 0
    for at, end in pairwise(sorted(changes)):
        density += changes[at]
        here = at
        while density and held + density * (end - here) >= each:
            here += min(end - here, max(1, (each - held) // density))
            out.append(here)
            held = 0
        held += density * (end - here)
    return out


def _number(key: bytes) -> int:
    return int.from_bytes(key[:NUMBER_BYTES].ljust(NUMBER_BYTES, b"\0"), "big")


def _key(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES + 1, "big")[1:].rstrip(b"\0")
