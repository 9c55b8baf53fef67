"""Cutting a task's span into key-range shards, one Spark task each. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tistream.format.manifest import PendingPart
from tistream.model.span import KeySpan
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.jobs.shard import Shard, ShardFile, StoreRules
from tistream_sorter.key_scale import Load, between, evenly

ROW_BYTES = 128  # what a row costs beside its values: roughly, in memory and in time
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


def cut(span: KeySpan, files: Sequence[ShardFile], pending: Sequence[PendingPart], high: int, rules: CutRules) -> Cut:
    """Neighbouring spans of about equal work; `high` is the window's end.

    Cut at the lowest keys of row groups and parts, so that few of them have keys on both sides of a cut: such a one is
    read twice. Where that leaves one span with far more than its share (all traffic in one region), keys are taken to
    lie evenly between the bounds of each, and spans are cut anywhere. One span where there is too little for two, or
    where row groups have no key statistics.
    """
    groups = [group for file in files for group in file.wanted_groups]
    read = sum(group.length for group in groups)
    loads = [*_of_groups(groups, pending), *_of_parts(span, groups, pending, high, rules.rows_small)]
    work = sum(load.weight for load in loads)
    count = _count(read, work, rules)
    if count < 2 or any(group.key_min is None or group.key_max is None for group in groups):
        return Cut((span,), work)
    bounds = between(span, loads, count) or evenly(span, loads, count)
    edges = [span.start, *bounds, span.end]
    return Cut(tuple(KeySpan(start, end) for start, end in itertools.pairwise(edges)), work)


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
        weight = group.length + group.rows * (ROW_BYTES + brings)
        out.append(Load(group.key_min or b"", group.key_max or b"", weight))
    return out


def _of_parts(
    span: KeySpan, groups: Sequence[RowGroupRef], pending: Sequence[PendingPart], high: int, rows_small: int
) -> list[Load]:
    """Of the large parts that may be read: those that row groups touch, and those whose commits the window has reached,
    whose rows may bring the values of others (docs/adr/0005)."""
    pointing = [part for part in pending if part.pointed_bytes]
    out = []
    for part in pending:
        if part.row_groups or part.rows < rows_small:
            continue
        reached = part.commit_ts_min <= high
        if reached or any(_may_touch(group, part.span) for group in groups):
            near = [_row_bytes(other) for other in pointing if reached and other.span.overlaps(part.span)]
            weight = part.size + part.rows * (ROW_BYTES + max(near, default=0))
            out.append(Load(part.span.start, part.span.end or span.end or b"\xff" * 32, weight))
    return out


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


def bundles(shards: Sequence[Shard], count: int) -> list[list[Shard]]:
    """Spread shards over at most `count` Spark tasks by weight, heaviest first."""
    out: list[list[Shard]] = [[] for _ in range(min(count, len(shards)))]
    weights = [0] * len(out)
    for shard in sorted(shards, key=lambda shard: -shard.weight):
        lightest = weights.index(min(weights))
        out[lightest].append(shard)
        weights[lightest] += shard.weight
    return out
