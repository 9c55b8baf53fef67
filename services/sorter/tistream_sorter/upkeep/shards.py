"""Cuts a task's span into shards, each a range of keys that one Spark task processes in a tick. Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from tistream.format.manifest import PendingPart
from tistream.model.span import KeySpan
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.jobs.pruning import ReadRules
from tistream_sorter.jobs.shard import ShardFile, StorageRules
from tistream_sorter.upkeep.key_scale import KEY_BYTES, KeyLoad, between, evenly

ROW_BYTES = 128  # estimated cost of a row besides its values, in memory and time
IDENTITY_BYTES = 64  # cost of a settled row of which only key and start_ts are read
SPANS_MAX = 64  # with more spans than this, `touched` returns one span that covers all


@dataclass(frozen=True, slots=True)
class CutRules:
    """The rules for cutting a tick into shards, and for storing their pending rows. There are at most `shards_max`
    shards, each with at least `shard_bytes_min` bytes of row groups. There are more if the work of a shard would exceed
    `shard_work_max`. Pending parts of fewer than `rows_small` rows are always read, and merged."""

    shards_max: int
    shard_bytes_min: int
    shard_work_max: int = 128 << 20
    rows_small: int = 16_384
    store: StorageRules = field(default_factory=StorageRules)


@dataclass(frozen=True, slots=True)
class ShardCut:
    """Neighbouring spans of about equal work. work: the sum over all spans, in bytes: bytes of row groups, ROW_BYTES
    for each row, and bytes that may be read through pointers."""

    spans: tuple[KeySpan, ...]
    work: int


def cut(
    span: KeySpan, files: Sequence[ShardFile], pending: Sequence[PendingPart], reads: ReadRules, rules: CutRules
) -> ShardCut:
    """Cut `span` into neighbouring spans of about equal work. The work counts all data that may be read, because the
    memory of a shard depends on it.

    Cuts are at lowest keys of row groups and parts, so that few of these have keys on both sides and are read twice. If
    one span then has far more than its share (for example all traffic in one region), cuts are made anywhere, on the
    assumption that keys are spread evenly between the bounds. The result is one span if there is too little work for
    two, or if a row group has no key statistics.
    """
    groups = [group for file in files for group in file.wanted_groups]
    read = sum(group.length for group in groups)
    loads = [*_of_groups(groups, pending), *_of_parts(span, groups, pending, reads)]
    work = sum(load.weight for load in loads)
    count = _count(read, work, rules)
    if count < 2 or any(group.key_min is None or group.key_max is None for group in groups):
        return ShardCut((span,), work)
    bounds = between(span, loads, count) or evenly(span, loads, count)
    edges = [span.start, *bounds, span.end]
    return ShardCut(tuple(KeySpan(start, end) for start, end in itertools.pairwise(edges)), work)


def cut_at(spans: Sequence[KeySpan], bounds: Sequence[bytes]) -> tuple[KeySpan, ...]:
    """Cut neighbouring spans further, at each of the keys `bounds`."""
    edges = sorted({*(span.start for span in spans), *bounds})
    inside = [key for key in edges if key >= spans[0].start and (not spans[-1].end or key < spans[-1].end)]
    return tuple(KeySpan(start, end) for start, end in itertools.pairwise([*inside, spans[-1].end]))


def _count(read: int, work: int, rules: CutRules) -> int:
    """The number of shards: at most one for each slot, and fewer for little work. If the work of a shard would exceed
    the limit, a multiple of the number of slots."""
    rounds = -(-work // (rules.shard_work_max * rules.shards_max))
    if rounds > 1 or work > rules.shard_work_max * rules.shards_max:
        return rounds * rules.shards_max
    fitting = min(rules.shards_max, read // max(rules.shard_bytes_min, 1))
    return max(fitting, min(rules.shards_max, -(-work // rules.shard_work_max)))


def _of_groups(groups: Sequence[RowGroupRef], pending: Sequence[PendingPart]) -> list[KeyLoad]:
    """The work of each row group: its bytes, its rows, and the bytes that may be read through pointers for its rows."""
    pointing = [part for part in pending if part.pointed_bytes]
    out = []
    for group in groups:
        brings = max((_row_bytes(part) for part in pointing if _may_touch(group, part.span)), default=0)
        weight = group.weight + group.rows * (ROW_BYTES + brings)
        out.append(KeyLoad(group.key_min or b"", group.key_max or b"", weight))
    return out


def _of_parts(
    span: KeySpan, groups: Sequence[RowGroupRef], pending: Sequence[PendingPart], reads: ReadRules
) -> list[KeyLoad]:
    """The work of the pending parts that may be read: those that are read in any case, and those that overlap a row
    group, or a part with commits inside the window (docs/adr/0005). Rows of such a part may need values through the
    pointers of other parts."""
    pointing = [part for part in pending if part.pointed_bytes]
    reached = [part for part in pending if part.commit_ts_min <= reads.high and not part.row_groups]
    near = _Bounds([*((group.key_min, group.key_max) for group in groups), *map(_bounds_of, reached)])
    out = []
    for part in pending:
        touched = near.touch(part.span)
        if part.row_groups:  # settled rows: only their identities are read, to find repeats
            weight = part.rows * IDENTITY_BYTES if touched else 0
        elif touched or reads.must_read(part):
            window = part.commit_ts_min <= reads.high
            brought = [_row_bytes(other) for other in pointing if window and other.span.overlaps(part.span)]
            weight = part.size + part.rows * (ROW_BYTES + max(brought, default=0))
        else:
            weight = 0
        if weight:
            low, high = _bounds_of(part)
            out.append(KeyLoad(low, high or span.end or b"\xff" * KEY_BYTES, weight))
    return out


def _bounds_of(part: PendingPart) -> tuple[bytes, bytes | None]:
    """The start and end key of the part's span; None for plus infinity."""
    return part.span.start, part.span.end or None


class _Bounds:
    """A set of key ranges, each as (lowest, highest), both inclusive. None: the range has no such bound."""

    def __init__(self, bounds: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        ordered = sorted((low or b"", high is None, high or b"") for low, high in bounds)
        self._lows = [low for low, _, _ in ordered]
        self._highest = list(accumulate(((open_, high) for _, open_, high in ordered), max))

    def touch(self, span: KeySpan) -> bool:
        """Whether any of the ranges may have a key in the span."""
        at = bisect_left(self._lows, span.end) if span.end else len(self._lows)
        if not at:
            return False
        unbounded, high = self._highest[at - 1]
        return unbounded or high >= span.start


def _row_bytes(part: PendingPart) -> int:
    return part.pointed_bytes // max(part.rows, 1)


def touching(files: Sequence[ShardFile], span: KeySpan) -> tuple[ShardFile, ...]:
    """The files with row groups that may hold keys of the span, each with only these row groups as `wanted`."""
    out = []
    for file in files:
        wanted = tuple(group.index for group in file.wanted_groups if _may_touch(group, span))
        if wanted:
            out.append(replace(file, wanted=wanted))
    return tuple(out)


def _may_touch(group: RowGroupRef, span: KeySpan) -> bool:
    return group.key_min is None or group.key_max is None or span.touches(group.key_min, group.key_max)


def touched(span: KeySpan, files: Sequence[ShardFile], parts: Sequence[PendingPart]) -> list[KeySpan]:
    """At most SPANS_MAX spans inside `span` that cover all keys of the files' row groups and of the pending parts. If
    there would be more, one span covers all of them, and the keys between them."""
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
