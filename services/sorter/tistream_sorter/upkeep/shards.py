"""Cutting a task's span into key-range shards, one Spark task each. Pure."""

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
from tistream_sorter.jobs.shard import ShardFile, StoreRules
from tistream_sorter.upkeep.key_scale import KEY_BYTES, Load, between, evenly

ROW_BYTES = 128  # what a row costs beside its values: roughly, in memory and in time
IDENTITY_BYTES = 64  # of a settled row of which key and start_ts alone are read
SPANS_MAX = 64  # beyond, one that holds them all


@dataclass(frozen=True, slots=True)
class CutRules:
    """How a task's tick is cut into shards, and what these do with what waits.

    At most `shards_max`, each of at least `shard_bytes_min` of row groups; more, if a shard's work would come above
    `shard_work_max`. Pending parts of fewer than `rows_small` rows are always read, and merged.
    """

    shards_max: int
    shard_bytes_min: int
    shard_work_max: int = 128 << 20
    rows_small: int = 16_384
    store: StoreRules = field(default_factory=StoreRules)


@dataclass(frozen=True, slots=True)
class Cut:
    """Neighbouring spans of about equal work, and the work of all: bytes of row groups, a price a row, and what may be
    read through pointers."""

    spans: tuple[KeySpan, ...]
    work: int


def cut(
    span: KeySpan, files: Sequence[ShardFile], pending: Sequence[PendingPart], reads: ReadRules, rules: CutRules
) -> Cut:
    """Neighbouring spans of about equal work: of all that may be read, since memory depends on it.

    Cut at the lowest keys of row groups and parts, so that few of them have keys on both sides of a cut: such a one is
    read twice. Where that leaves one span with far more than its share (all traffic in one region), keys are taken to
    lie evenly between the bounds of each, and spans are cut anywhere. One span where there is too little for two, or
    where row groups have no key statistics.
    """
    groups = [group for file in files for group in file.wanted_groups]
    read = sum(group.length for group in groups)
    loads = [*_of_groups(groups, pending), *_of_parts(span, groups, pending, reads)]
    work = sum(load.weight for load in loads)
    count = _count(read, work, rules)
    if count < 2 or any(group.key_min is None or group.key_max is None for group in groups):
        return Cut((span,), work)
    bounds = between(span, loads, count) or evenly(span, loads, count)
    edges = [span.start, *bounds, span.end]
    return Cut(tuple(KeySpan(start, end) for start, end in itertools.pairwise(edges)), work)


def cut_at(spans: Sequence[KeySpan], bounds: Sequence[bytes]) -> tuple[KeySpan, ...]:
    """The neighbouring spans, cut at further keys."""
    edges = sorted({*(span.start for span in spans), *bounds})
    inside = [key for key in edges if key >= spans[0].start and (not spans[-1].end or key < spans[-1].end)]
    return tuple(KeySpan(start, end) for start, end in itertools.pairwise([*inside, spans[-1].end]))


def _count(read: int, work: int, rules: CutRules) -> int:
    """How many shards: as many as slots if they are worth it; if that is too few, so many for each slot."""
    rounds = -(-work // (rules.shard_work_max * rules.shards_max))
    if rounds > 1 or work > rules.shard_work_max * rules.shards_max:
        return rounds * rules.shards_max
    fitting = min(rules.shards_max, read // max(rules.shard_bytes_min, 1))
    return max(fitting, min(rules.shards_max, -(-work // rules.shard_work_max)))


def _of_groups(groups: Sequence[RowGroupRef], pending: Sequence[PendingPart]) -> list[Load]:
    """Of each row group: its bytes, its rows, and what its rows may bring through pointers."""
    pointing = [part for part in pending if part.pointed_bytes]
    out = []
    for group in groups:
        brings = max((_row_bytes(part) for part in pointing if _may_touch(group, part.span)), default=0)
        weight = group.weight + group.rows * (ROW_BYTES + brings)
        out.append(Load(group.key_min or b"", group.key_max or b"", weight))
    return out


def _of_parts(
    span: KeySpan, groups: Sequence[RowGroupRef], pending: Sequence[PendingPart], reads: ReadRules
) -> list[Load]:
    """Of the parts that may be read: those that are in any case, and those that row groups touch, or other parts whose
    commits the window has reached (docs/adr/0005). Their rows may bring the values of others."""
    pointing = [part for part in pending if part.pointed_bytes]
    reached = [part for part in pending if part.commit_ts_min <= reads.high and not part.row_groups]
    near = _Bounds([*((group.key_min, group.key_max) for group in groups), *map(_bounds_of, reached)])
    out = []
    for part in pending:
        touched = near.touch(part.span)
        if part.row_groups:  # settled rows: of these, repeats are told by their identities
            weight = part.rows * IDENTITY_BYTES if touched else 0
        elif touched or reads.reaches(part):
            window = part.commit_ts_min <= reads.high
            brought = [_row_bytes(other) for other in pointing if window and other.span.overlaps(part.span)]
            weight = part.size + part.rows * (ROW_BYTES + max(brought, default=0))
        else:
            weight = 0
        if weight:
            low, high = _bounds_of(part)
            out.append(Load(low, high or span.end or b"\xff" * KEY_BYTES, weight))
    return out


def _bounds_of(part: PendingPart) -> tuple[bytes, bytes | None]:
    """The span's start and end; None where it has none."""
    return part.span.start, part.span.end or None


class _Bounds:
    """Many (lowest, highest) keys; None: no bound."""

    def __init__(self, bounds: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        ordered = sorted((low or b"", high is None, high or b"") for low, high in bounds)
        self._lows = [low for low, _, _ in ordered]
        self._highest = list(accumulate(((open_, high) for _, open_, high in ordered), max))

    def touch(self, span: KeySpan) -> bool:
        """Whether any of them may have a key in the span."""
        at = bisect_left(self._lows, span.end) if span.end else len(self._lows)
        if not at:
            return False
        unbounded, high = self._highest[at - 1]
        return unbounded or high >= span.start


def _row_bytes(part: PendingPart) -> int:
    return part.pointed_bytes // max(part.rows, 1)


def touching(files: Sequence[ShardFile], span: KeySpan) -> tuple[ShardFile, ...]:
    """The files with those of their row groups that may hold keys of the span; no others."""
    out = []
    for file in files:
        wanted = tuple(group.index for group in file.wanted_groups if _may_touch(group, span))
        if wanted:
            out.append(replace(file, wanted=wanted))
    return tuple(out)


def _may_touch(group: RowGroupRef, span: KeySpan) -> bool:
    return group.key_min is None or group.key_max is None or span.touches(group.key_min, group.key_max)


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
