"""Cutting a task's span into key-range shards, one Spark task each. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tistream.format.manifest import PendingPart
from tistream.model.span import KeySpan
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.jobs.shard import Shard, ShardFile

UNEVEN = 1.3  # times its share: more than that in one shard is worth reading row groups twice
SPANS_MAX = 64  # beyond, one that holds them all


def cut(span: KeySpan, files: Sequence[ShardFile], shards_max: int, bytes_min: int) -> list[KeySpan]:
    """At most `shards_max` neighbouring spans of about equal bytes.

    Cut at the lowest keys of row groups, so that few of them have keys on both sides of a cut: such a row group is read
    twice. Where that leaves one span with far more than its share (all traffic in one region), keys are taken to lie
    evenly between each row group's bounds, and spans are cut anywhere. One span where the bytes do not fill two shards
    of `bytes_min`, or where row groups have no key statistics.
    """
    groups = [group for file in files for group in file.wanted_groups]
    total = sum(group.length for group in groups)
    count = min(shards_max, total // max(bytes_min, 1))
    if count < 2 or any(group.key_min is None or group.key_max is None for group in groups):
        return [span]
    bounds = _between_groups(span, groups, count)
    scale = _KeyScale(groups)
    shares = np.diff([0.0, *(scale.below(bound) for bound in bounds), float(total)])
    if shares.max() > UNEVEN * total / count:
        bounds = _anywhere(span, total, count, scale)
    edges = [span.start, *bounds, span.end]
    return [KeySpan(start, end) for start, end in itertools.pairwise(edges)]


def _between_groups(span: KeySpan, groups: Sequence[RowGroupRef], count: int) -> list[bytes]:
    total = sum(group.length for group in groups)
    bounds: list[bytes] = []
    seen = 0
    for key, length in sorted((group.key_min or b"", group.length) for group in groups):
        if len(bounds) == count - 1:
            break
        if seen >= total * (len(bounds) + 1) / count and key in span and key > (bounds[-1] if bounds else span.start):
            bounds.append(key)
        seen += length
    return bounds


def _anywhere(span: KeySpan, total: int, count: int, scale: _KeyScale) -> list[bytes]:
    """Keys that cut off equal bytes each, found by bisection."""
    bounds: list[bytes] = []
    for number in range(1, count):
        low, high = 0, (1 << 64) - 1
        while low < high:
            middle = (low + high) // 2
            if scale.below(scale.key(middle)) < total * number / count:
                low = middle + 1
            else:
                high = middle
        key = scale.key(low)
        if key in span and key > (bounds[-1] if bounds else span.start):
            bounds.append(key)
    return bounds


class _KeyScale:
    """Row groups' keys as numbers, the eight bytes behind what all of them begin with, taken to lie evenly between the
    bounds of each row group."""

    def __init__(self, groups: Sequence[RowGroupRef]) -> None:
        lows, highs = [group.key_min or b"" for group in groups], [group.key_max or b"" for group in groups]
        self._prefix = _common_prefix(min(lows), max(highs))
        self._low = np.array([self._number(key) for key in lows])
        self._width = np.array([self._number(key) for key in highs]) - self._low
        self._bytes = np.array([group.length for group in groups], float)

    def _number(self, key: bytes) -> float:
        """Where a key lies; one from outside lies at the end."""
        head, tail = key[: len(self._prefix)], key[len(self._prefix) :][:8]
        if head != self._prefix:
            return 0.0 if head < self._prefix else float(1 << 64)
        return float(int.from_bytes(tail.ljust(8, b"\x00"), "big"))

    def key(self, number: int) -> bytes:
        """The key at a number below 2 ** 64."""
        return self._prefix + number.to_bytes(8, "big")

    def below(self, key: bytes) -> float:
        """Bytes of the row groups below a key."""
        ahead = self._number(key) - self._low
        share = np.where(self._width > 0, ahead / np.maximum(self._width, 1.0), ahead > 0)
        return float((self._bytes * share.clip(0.0, 1.0)).sum())


def _common_prefix(left: bytes, right: bytes) -> bytes:
    length = next(
        (at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    return left[:length]


def touched(span: KeySpan, files: Sequence[ShardFile], parts: Sequence[PendingPart]) -> list[KeySpan]:
    """Spans, a few, that hold every key of `span` which the files' row groups and the pending parts may have."""
    bounds: list[tuple[bytes, bytes]] = []
    for file in files:
        for group in file.wanted_groups:
            if group.key_min is None or group.key_max is None:
                return [span]
            bounds.append((group.key_min, group.key_max + b"\x00"))
    if any(not part.span.end for part in parts):
        return [span]
    bounds += [(part.span.start, part.span.end) for part in parts]
    if len(bounds) > SPANS_MAX:
        bounds = [(min(low for low, _ in bounds), max(high for _, high in bounds))]
    clipped = [KeySpan(low, high).clip(span) for low, high in bounds]
    return [piece for piece in clipped if piece is not None]


def bundles(shards: Sequence[Shard], count: int) -> list[list[Shard]]:
    """Spread shards over at most `count` Spark tasks by weight, heaviest first."""
    out: list[list[Shard]] = [[] for _ in range(min(count, len(shards)))]
    weights = [0] * len(out)
    for shard in sorted(shards, key=lambda shard: -shard.weight):
        lightest = weights.index(min(weights))
        out[lightest].append(shard)
        weights[lightest] += shard.weight
    return out
