"""Selects the next merge of a task's version index (docs/adr/0028). Pure; `now_ms` is wall clock.

For each part of the index, these merges are considered in order:

1. *New rows.* Rows of segments that are older than `age_ms` become a run. A run is made if the rows have `run_bytes`
   or an eighth of the index, if the oldest of them has waited `wait_ms`, or if retention waits for it.
2. *Fold.* Runs at or below the retention floor are merged into the base run, if they have at least
   `fold_share` times the bytes of the rest of the index. The base run has no deletes. So a fold includes every object
   of a backfill that may have an older row of its keys. No such object is added later: a chunk below the floor is
   refused (base_plan.py), and the floor waits for open backfills.
3. *Tiers.* `factor` or more neighbouring runs of a tier or of lower tiers are merged, if that at least doubles the
   largest. Tier t has runs of `factor`^t KiB or more. With a retention a merged run has at most a tenth of the index,
   or `run_bytes` if that is more, so that the floor soon passes it.
4. *Alignment.* After a merge of tasks, runs of neighbouring parts are merged until their windows are equal, so that the
   parts become one.

All merges except those of new rows share a budget: the index never writes more than `amplification` bytes for each byte
of segments that it has read. A fold that is due and too expensive waits, and tiers wait with it. Age is counted from
the earlier of this node's clock and the task's flushed_ts, as for retention. So a task without new rows reaches a state
in which no merge is due, and stays in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tistream.format.run import Index, IndexPart, RunRef
from tistream.format.segment import SegmentRef
from tistream.model.ts import Window, from_physical_ms, physical_ms
from tistream_sorter.jobs.index.index_unit import IndexUnit
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.upkeep.version_index import BYTES_IN, BYTES_OUT, index_of

TIER_BYTES = 1 << 10
EIGHTH, TENTH = 8, 10


@dataclass(frozen=True, slots=True)
class IndexRules:
    """The limits of the version index; see SorterSettings.index."""

    age_ms: int = 600_000
    wait_ms: int = 3_600_000
    run_bytes: int = 16 << 20
    bytes_max: int = 64 << 20
    rows_max: int = 1 << 20
    unpacked_max: int = 128 << 20
    factor: int = 4
    fold_share: float = 0.2
    amplification: float = 4.0


Runs = tuple[RunRef, ...]


@dataclass(frozen=True, slots=True)
class _Planner:
    """Finds the next merge for the state of one task."""

    state: TaskState
    index: Index
    rules: IndexRules
    nonce: str
    skip: frozenset[str]
    clock_ms: int

    def first(self) -> IndexUnit | None:
        """The first merge that is due; None if no merge is due, or if the due fold is too expensive now."""
        for part in sorted(self.index, key=lambda part: part.indexed_ts):
            unit = self._new(part)
            if unit is not None and self.skip.isdisjoint(unit.inputs):
                return unit
        for part in self.index:
            fold = self._fold(part)
            if fold is not None and self.skip.isdisjoint(fold.inputs):
                return fold if self._affordable(fold) else None
        for unit in self._optional():
            if self._affordable(unit) and self.skip.isdisjoint(unit.inputs):
                return unit
        return None

    def _optional(self) -> Iterator[IndexUnit]:
        for part in self.index:
            yield from self._tiers(part)
        for left, right in pairwise(self.index):
            yield from self._align(left, right)

    def _affordable(self, unit: IndexUnit) -> bool:
        counters = self.state.counters
        allowed = self.rules.amplification * counters.get(BYTES_IN, 0)
        return counters.get(BYTES_OUT, 0) + unit.cost <= allowed

    # -- new rows -------------------------------------------------------------------------------------------------

    def _new(self, part: IndexPart) -> IndexUnit | None:
        aged_ts = from_physical_ms(max(0, self.clock_ms - self.rules.age_ms))
        ahead = max(one.indexed_ts for one in self.index)
        behind = part.indexed_ts < ahead  # another part is behind: it catches up first
        fresh = [one for one in self.state.live_segments if one.commit_ts_max > part.indexed_ts]
        if behind:
            ends = sorted({one.commit_ts_max for one in fresh if one.commit_ts_max < ahead} | {ahead})
        else:
            ends = sorted({one.commit_ts_max for one in fresh if one.commit_ts_max <= aged_ts})
        if not ends:
            return None
        high, chosen = self._fitting(fresh, ends)
        window = Window(part.indexed_ts, high)
        size = sum(_bytes_in(one, window) for one in chosen)
        if not behind and not self._due(part, chosen, size):
            return None
        return self._unit(part, part.indexed_ts, high, segments=chosen, source_bytes=size, cost=size)

    def _fitting(self, fresh: Sequence[SegmentRef], ends: Sequence[int]) -> tuple[int, tuple[SegmentRef, ...]]:
        """Find the longest window of new rows that one job can merge, or at least the shortest one. Returns (the upper
        end of the window, the segments that have its rows)."""
        high, chosen = ends[0], tuple(one for one in fresh if one.commit_ts_min <= ends[0])
        size, rows = sum(one.size for one in chosen), sum(one.rows for one in chosen)
        waiting = sorted((one for one in fresh if one.commit_ts_min > ends[0]), key=lambda one: one.commit_ts_min)
        at = 0
        for end in ends[1:]:
            while at < len(waiting) and waiting[at].commit_ts_min <= end:
                size, rows, at = size + waiting[at].size, rows + waiting[at].rows, at + 1
            if size > self.rules.bytes_max or rows > self.rules.rows_max:
                break
            high = end
        return high, tuple(one for one in fresh if one.commit_ts_min <= high)

    def _due(self, part: IndexPart, chosen: Sequence[SegmentRef], size: int) -> bool:
        total = _size([part.runs, part.basis])
        if size >= min(self.rules.run_bytes, max(1, total // EIGHTH)):
            return True
        oldest_ts = max(part.indexed_ts, min(one.commit_ts_min for one in chosen))
        if self.clock_ms - physical_ms(oldest_ts) >= self.rules.wait_ms:
            return True
        return oldest_ts <= self.state.retained_ts  # these segments are dropped once a run has their rows

    # -- fold, tiers, alignment -----------------------------------------------------------------------------------

    def _split(self, part: IndexPart) -> tuple[list[Runs], list[Runs]]:
        """The runs at or below the retention floor, and the other runs, both oldest first."""
        floor_ts = self.state.retained_ts
        windows = part.by_window()
        count = sum(run[0].high_ts <= floor_ts for run in windows)
        return windows[:count], windows[count:]

    def _fold(self, part: IndexPart) -> IndexUnit | None:
        old, recent = self._split(part)
        if not old:
            return None
        folded, rest = _size(old), _size([part.base, part.basis, *recent])
        if folded < self.rules.fold_share * rest:
            return None
        changes = [run for runs in old for run in runs]
        high_ts = old[-1][0].high_ts
        # A base's row above high_ts has no change at or below high_ts, so a fold drops no delete of it.
        older = _touching([run for run in part.basis if run.high_ts <= high_ts], changes)
        touched = _touching(part.base, [*older, *changes])
        keep = tuple(base for base in part.base if base not in touched)
        cost = folded + _size([touched, older])
        return self._unit(part, None, high_ts, runs=(*touched, *older, *changes), keep=keep, cost=cost)

    def _tiers(self, part: IndexPart) -> Iterator[IndexUnit]:
        _, recent = self._split(part)
        largest = None
        if self.state.retention.keep_ms is not None:
            largest = max(self.rules.run_bytes, _size([part.base, part.basis, *part.by_window()]) // TENTH)
        tiers = [self._tier(_size([runs])) for runs in recent]
        for tier in sorted(set(tiers)):
            for begin, end in _longest([one <= tier for one in tiers]):
                chosen = _within(recent[begin:end], largest)
                sizes = [_size([runs]) for runs in chosen]
                if len(chosen) >= self.rules.factor and sum(sizes) >= 2 * max(sizes):
                    yield self._merge(part, chosen)

    def _tier(self, size: int) -> int:
        tier, size = 0, size // TIER_BYTES
        while size >= self.rules.factor:
            tier, size = tier + 1, size // self.rules.factor
        return tier

    def _align(self, left: IndexPart, right: IndexPart) -> Iterator[IndexUnit]:
        """Merges of runs whose windows differ between two neighbouring parts of the index. Each merge stays within the
        longest windows whose bounds both parts have."""
        if (left.begins_ts, left.base_ts, left.indexed_ts) != (right.begins_ts, right.base_ts, right.indexed_ts):
            return
        bounds = sorted(_free(left) & _free(right))
        for low, high in pairwise(bounds):
            inside = [[runs for runs in part.by_window() if _inside(runs, low, high)] for part in (left, right)]
            windows = {runs[0].window for found in inside for runs in found}
            if len(windows) > 1:
                yield from (
                    self._unit(part, low, high, runs=tuple(run for runs in found for run in runs), cost=_size(found))
                    for part, found in zip((left, right), inside, strict=True)
                    if found and {runs[0].window for runs in found} != {(low, high)}
                )

    def _merge(self, part: IndexPart, chosen: Sequence[Runs]) -> IndexUnit:
        low, high = chosen[0][0].low_ts, chosen[-1][0].high_ts
        return self._unit(part, low, high, runs=tuple(run for runs in chosen for run in runs), cost=_size(chosen))

    def _unit(
        self,
        part: IndexPart,
        low: int | None,
        high: int,
        *,
        segments: tuple[SegmentRef, ...] = (),
        runs: Runs = (),
        keep: Runs = (),
        source_bytes: int = 0,
        cost: int = 0,
    ) -> IndexUnit:
        identity = self.state.identity
        return IndexUnit(
            tenant=identity.tenant,
            task_id=identity.task_id,
            task_epoch=identity.task_epoch,
            nonce=self.nonce,
            span=part.span,
            low_ts=low,
            high_ts=high,
            segments=segments,
            runs=runs,
            keep=keep,
            source_bytes=source_bytes,
            cost=cost,
            unpacked_max=self.rules.unpacked_max,
        )


def index_unit(
    state: TaskState, rules: IndexRules, now_ms: int, nonce: str, skip: frozenset[str] = frozenset()
) -> IndexUnit | None:
    """The next merge of a task's index, or None. Merges that would read an object whose key is in `skip` are left
    out."""
    clock_ms = min(now_ms, physical_ms(state.flushed_ts))
    return _Planner(state, index_of(state), rules, nonce, skip, clock_ms).first()


def _bytes_in(segment: SegmentRef, window: Window) -> int:
    """Estimate the bytes of a segment's rows that lie in the window, from the share of the rows of their row groups."""
    inside = sum(one.rows for one in segment.row_groups if window.overlaps(one.commit_ts_min, one.commit_ts_max))
    return segment.size * inside // segment.rows


def _size(runs: Sequence[Runs]) -> int:
    return sum(run.size for one in runs for run in one)


def _touching(bases: Sequence[RunRef], others: Sequence[RunRef]) -> Runs:
    """The objects in `bases` whose key range overlaps the one from the lowest to the highest key of `others`. `others`
    must not be empty."""
    first, last = min(run.first[1] for run in others), max(run.last[1] for run in others)
    return tuple(base for base in bases if base.first[1] <= last and first <= base.last[1])


def _within(chosen: Sequence[Runs], largest: int | None) -> Sequence[Runs]:
    """The longest sequence of neighbours that together have at most `largest` bytes."""
    if largest is None:
        return chosen
    best: Sequence[Runs] = ()
    begin = size = 0
    for at, runs in enumerate(chosen):
        size += _size([runs])
        while size > largest:
            size, begin = size - _size([chosen[begin]]), begin + 1
        if at + 1 - begin > len(best):
            best = chosen[begin : at + 1]
    return best


def _longest(chosen: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The sequences of True that cannot be extended, each as a half-open range [begin, end) of positions."""
    begin = 0
    for at, one in enumerate([*chosen, False]):
        if not one:
            if at > begin:
                yield begin, at
            begin = at + 1


def _free(part: IndexPart) -> set[int]:
    """The timestamps at which a window of the part begins or ends. Windows of the neighbouring part may be cut
    there."""
    bounds = {part.base_ts, part.indexed_ts}
    return bounds | {ts for runs in part.by_window() for ts in runs[0].window if ts is not None}


def _inside(runs: Runs, low: int, high: int) -> bool:
    start = runs[0].low_ts
    return start is not None and low <= start and runs[0].high_ts <= high
