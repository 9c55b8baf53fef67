"""Chooses the row groups to read next, so that memory stays within a budget. Pure.

A pull reads its window in chunks `(low, high]`. The end of a chunk is chosen in two steps. A coarse one needs no I/O,
because manifests have the bounds of row groups. The exact one is chosen by the commit_ts columns of these row groups.
If a single commit_ts has more rows than the budget, it is called crowded, and is cut into pieces in the order of
events: transaction, table, deletes before puts, key.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.model.ts import Window
from tistream.read.cursor import Place, Position

OP_DELETE = 0
OP_PUT = 1
# Minimum number of rows in a piece, however small the budget: all runs are in memory at once, and a piece that is too
# long is cut by keys.
STRIP_ROWS_MIN = 256
# A run has at most 1/16 of the budget; the shorter the runs, the more exactly their bounds show where a piece may end.
STRIPS = 16
# Approximate size, in budgets of rows, of a piece that must be cut by its keys anyway: one read of the keys serves that
# number of parts.
WIDE = 8


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A reference to one row group of one segment."""

    segment: SegmentRef
    index: int

    @property
    def info(self) -> RowGroupInfo:
        return self.segment.row_groups[self.index]

    @property
    def bytes_per_row(self) -> float:
        """The average bytes of a row in the segment. Manifests do not record the size of a row group."""
        return self.segment.size / max(self.segment.rows, 1)


def groups_in(
    segments: Iterable[SegmentRef], window: Window, ids: npt.NDArray[np.int64] | None, *, raw: bool = False
) -> list[GroupRef]:
    """The row groups that may hold rows of `window` and of the physical ids (ascending; None: every user table, or with
    `raw` every keyspace of RawKV), ordered by lowest commit_ts."""
    found = [
        GroupRef(segment, index)
        for segment in segments
        for index, group in enumerate(segment.row_groups)
        if window.overlaps(group.commit_ts_min, group.commit_ts_max) and may_hold(group, ids, raw=raw)
    ]
    return sorted(found, key=lambda ref: ref.info.commit_ts_min)


def may_hold(group: RowGroupInfo, ids: npt.NDArray[np.int64] | None, *, raw: bool) -> bool:
    """Whether a row group may hold rows of the physical ids. `ids` and `raw` are those of groups_in."""
    if ids is None:
        return group.table_id_min < 0 if raw else group.table_id_max > 0
    at = int(np.searchsorted(ids, group.table_id_min))
    return at < len(ids) and int(ids[at]) <= group.table_id_max


def coarse_cut(groups: Sequence[GroupRef], window: Window, budget: int) -> tuple[int, list[GroupRef]]:
    """Choose a coarse end for the next chunk: the chunk's row groups hold about `budget` rows. Returns the chunk's high
    end, and its row groups.

    `groups` is in the order of groups_in. The row groups with the lowest commit_ts are always included, whatever their
    size.
    """
    rows = 0
    high = window.high
    for at, ref in enumerate(groups):
        begins = max(ref.info.commit_ts_min, window.low + 1)
        if rows >= budget and begins > max(groups[0].info.commit_ts_min, window.low + 1):
            high = begins - 1
            return high, [group for group in groups[:at] if group.info.commit_ts_min <= high]
        rows += ref.info.rows
    return high, list(groups)


def horizon(begins: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], window: Window, budget: int) -> int:
    """Choose the ts, inclusive, up to which a pull looks for row groups next. The segments that begin at or below it
    hold at least `budget` rows, or it is the window's end.

    `begins` and `rows` are the lowest commit_ts and the row counts of the window's segments, in any order.
    """
    begins = np.maximum(begins, window.low + 1)
    order = np.argsort(begins, kind="stable")
    at = int(np.searchsorted(np.cumsum(rows[order]), budget))
    if at >= len(order):
        return window.high
    beyond = begins[order][begins[order] > begins[order[at]]]
    return int(beyond[0]) - 1 if len(beyond) else window.high


@dataclass(frozen=True, slots=True)
class PlanCut:
    """The exact end of a chunk. With `crowded`, `high` is a single commit_ts with too many rows to be held at once."""

    high: int
    rows: int
    crowded: bool


def exact_cut(commit_ts: npt.NDArray[np.int64], high: int, budget: int, budget_max: int) -> PlanCut:
    """Choose the exact end of a chunk of at most `budget` rows, at or below `high`. `commit_ts` has the commit_ts of
    the rows that may be in it, none above `high`, in any order.

    If the first commit_ts alone has more rows, it is a chunk of its own; above `budget_max` rows it is crowded.
    """
    if len(commit_ts) <= budget:
        return PlanCut(high, len(commit_ts), crowded=False)
    ascending = bool((commit_ts[1:] >= commit_ts[:-1]).all())  # those of one row group nearly always ascend
    beyond = int(commit_ts[budget] if ascending else np.partition(commit_ts, budget)[budget])
    fit = int(np.count_nonzero(commit_ts < beyond))
    if fit:
        return PlanCut(beyond - 1, fit, crowded=False)
    rows = int(np.count_nonzero(commit_ts == beyond))
    return PlanCut(beyond, rows, crowded=rows > budget_max)


def rows_within(budget: int, budget_bytes: int, groups: Iterable[GroupRef]) -> int:
    """The row budget for these row groups. It is lower than `budget` if rows are so long that `budget` rows would
    exceed `budget_bytes` of compressed data."""
    longest = max((ref.bytes_per_row for ref in groups), default=0.0)
    return max(1, min(budget, int(budget_bytes / longest))) if longest else budget


@dataclass(frozen=True, slots=True)
class CrowdedRun:
    """Adjacent rows of a row group that belong to one crowded commit_ts, one transaction and one physical table. They
    are in key order."""

    place: int  # index of the row group among those that hold rows of the commit_ts
    begin: int  # index of the run's first row among those rows of the row group
    start_ts: int
    table_id: int  # logical
    physical_id: int
    rows: int  # few compared to the budget, because longer runs are cut
    first_key: bytes
    last_key: bytes

    @property
    def transaction(self) -> tuple[int, int]:
        return self.start_ts, self.table_id


@dataclass(frozen=True, slots=True)
class PlanPiece:
    """The rows of a crowded commit_ts that are read and held in memory together. Every event of a piece comes before
    every event of the next piece.

    `op` None means deletes and puts. The keys are `key_low <= key` and, if `key_high` is not None, `key < key_high`.
    """

    runs: tuple[CrowdedRun, ...]
    op: int | None = None
    key_low: bytes = b""
    key_high: bytes | None = None

    @property
    def rows_max(self) -> int:
        """An upper bound of the piece's rows. It counts all rows of the runs, of which `op` and the keys may exclude
        some."""
        return sum(run.rows for run in self.runs)

    def cut_at(self, keys: Sequence[bytes]) -> list[PlanPiece]:
        """Cut the piece at `keys`, which ascend and lie strictly between its bounds. Returns the parts in order."""
        bounds = [self.key_low, *keys, self.key_high]
        return [
            replace(self, runs=tuple(run for run in self.runs if _meets(run, low, high)), key_low=low, key_high=high)
            for low, high in itertools.pairwise(bounds)
            if low is not None
        ]

    def ends_by(self, at: Position) -> bool:
        """Whether all events of the piece come at or before a position in the same commit_ts."""
        if at.place is not Place.ROW:
            return True
        mine, there = self.runs[-1].transaction, (at.start_ts, at.table_id)
        if mine != there or self.op is None:
            return mine < there
        return self.op < at.op or (self.op == at.op and self.key_high is not None and self.key_high <= at.key)


def _meets(run: CrowdedRun, low: bytes, high: bytes | None) -> bool:
    return run.last_key >= low and (high is None or run.first_key < high)


def strips(begin: int, end: int, budget: int) -> range:
    """The numbers of the rows at which to cut rows `begin` to `end` of one run. A part has budget / STRIPS rows, but at
    least STRIP_ROWS_MIN."""
    return range(begin, end, max(STRIP_ROWS_MIN, budget // STRIPS))


def pieces(runs: Iterable[CrowdedRun], budget: int) -> list[PlanPiece]:
    """Cut the rows of a single commit_ts, which do not fit into memory together, into pieces. Adjacent transactions and
    tables that fit into the budget together make one piece.

    A piece whose `rows_max` is above the budget must be cut by the keys of its rows before it is read: see `key_cuts`.
    """
    ordered = sorted(runs, key=lambda run: (run.start_ts, run.table_id, run.first_key))
    out: list[PlanPiece] = []
    together: list[CrowdedRun] = []
    for _, grouped in itertools.groupby(ordered, key=lambda run: run.transaction):
        same = list(grouped)
        rows = sum(run.rows for run in same)
        if together and rows + sum(run.rows for run in together) > budget:
            out.append(PlanPiece(tuple(together)))
            together = []
        if rows > budget:
            for op in (OP_DELETE, OP_PUT):
                out.extend(_by_key(same, op, budget))
        else:
            together.extend(same)
    if together:
        out.append(PlanPiece(tuple(together)))
    return out


def _by_key(runs: Sequence[CrowdedRun], op: int, budget: int) -> Iterable[PlanPiece]:
    """Cut one transaction and table into pieces in key order. The cuts are where runs begin.

    Row groups of one segment follow each other in key order. Segments of one shard, or of several ticks, overlap: a run
    belongs to every piece that it overlaps, and counts as a whole in each. The rows of runs that continue from the
    previous piece count in the budget, if they leave room in it. If they do not, pieces are made large, and are cut
    later by their keys.
    """
    key_low = b""
    held: list[CrowdedRun] = []
    fresh = reached = 0  # rows of the runs that begin in the piece, and of those that continue into it
    for run in runs:
        least = budget // 4 if reached <= budget // 2 else WIDE * budget
        full = fresh >= least and fresh + reached + run.rows > budget
        if held and full and run.first_key > max(key_low, held[0].first_key):
            yield PlanPiece(tuple(held), op, key_low, run.first_key)
            key_low = run.first_key
            held = [one for one in held if one.last_key >= key_low]
            fresh, reached = 0, sum(one.rows for one in held)
        held.append(run)
        fresh += run.rows
    yield PlanPiece(tuple(held), op, key_low, None)


def key_cuts(ascending: pl.Series, budget: int) -> list[bytes]:
    """Choose the keys at which to cut rows, so that each piece has at most `budget` rows. `ascending` has the key of
    each row. Rows of one key stay together: a transaction has at most one delete and one put of a key."""
    parts = -(-len(ascending) // budget)
    found = [ascending[len(ascending) * part // parts] for part in range(1, parts)]
    return [key for key, _ in itertools.groupby(found) if key > ascending[0]]
