"""Divides the keys of a release (one step of reading a log backup) into spans of about equal work, one for each shard.
Pure.

Where they are cut does not change what is written: each shard reads, joins and sorts rows of its span, and a file has
the rows of all shards. If a slice (a byte range of the log) has keys of two spans, both shards read it, so the cuts are
between slices where that is possible. A slice has keys of one region, so the bounds of regions are such places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tistream.logbackup.metadata import Slice
from tistream.model.span import WHOLE, KeySpan

POINT = 8 * 25  # bits after the point of a density: more than a number has, so that no density rounds to 0
MORE = 2  # a span may have 1 / MORE more bytes than wanted, if fewer slices then have keys of two spans
NUMBER_BYTES = 24  # of a key; 11 of table and kind, then the handle or the first bytes of a clustered key


def spans(slices: Sequence[Slice], bytes_each: int) -> list[KeySpan]:
    """Divide all keys into spans, each with about `bytes_each` unpacked bytes of slices, or up to half more. The
    bytes of a slice are assumed to be spread evenly between its smallest and largest key."""
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
    """The positions that divide numbers into ranges, from the lowest number on, each with the sum of weights `each` or
    up to 1 / MORE more. `weights` has (low, high, weight): the weight is spread evenly over the numbers from low to
    high, both included. Between the two sums, a range ends where its end cuts the smallest weight. If no weight's
    numbers begin or end there, it ends at `each`. Sums are fixed-point integers, so that what is added at the beginning
    of a range and subtracted at its end cancels exactly."""
    each <<= POINT
    most = each + each // MORE
    slopes, begun, ended = (Counter[int]() for _ in range(3))
    for low, high, weight in weights:
        density = (weight << POINT) // (high - low + 1)
        slopes[low] += density
        slopes[high + 1] -= density
        begun[low] += weight
        ended[high + 1] += weight
    out: list[int] = []
    density = across = held = 0
    ends: list[tuple[int, int, int]] = []  # where the range may end: weight on both sides, sum before it, position
    for at, end in pairwise(sorted(slopes)):
        across -= ended[at]
        if held >= each:
            ends.append((across, held, at))
        across += begun[at]
        density += slopes[at]
        here = at
        while density and held + density * (end - here) >= most:
            if ends:
                _, before, place = min(ends)
                held -= before
                ends.clear()
            else:
                here = place = here + min(end - here, max(1, (each - held) // density))
                held = 0
            out.append(place)
        held += density * (end - here)
    return out


def _number(key: bytes) -> int:
    return int.from_bytes(key[:NUMBER_BYTES].ljust(NUMBER_BYTES, b"\0"), "big")


def _key(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES + 1, "big")[1:].rstrip(b"\0")
