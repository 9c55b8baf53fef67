"""Chooses the objects and row groups that hold the versions of some keys as of a ts. Pure.

A read covers a window (low, high] of commit_ts: a read as of T has the window (0, T], and the changes between A and B
are in (A, B]. The newest version of each key in the window is the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.model import base_cover
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.lineage import LogSpan

LOGGED_ROWS, LOGGED_BYTES = 1 << 18, 16 << 20  # most rows, and stored bytes, of segments that are sorted by key


@dataclass(frozen=True, slots=True)
class IndexShard:
    """All committed versions of the keys in `span`: one part of a task's version index, and the task's segments.

    `runs` hold the state at base_ts and every version in (base_ts, indexed_ts]; `segments` hold every version above
    indexed_ts. Versions at or below `begins_ts` are there only if they were backfilled. `basis` has the base runs of
    backfills, whose rows are the oldest versions of their keys, and `cover` has the spans of which all rows are known.
    Shards of split tasks may list the same objects: only the rows with keys in `span` belong to the shard. `logged_ts`:
    `segments` have every change above it, also those that runs have; None if that is unknown.
    """

    span: KeySpan
    segments: tuple[SegmentRef, ...]
    runs: tuple[RunRef, ...] = ()
    indexed_ts: int = 0
    base_ts: int = 0
    begins_ts: int = 0
    basis: tuple[RunRef, ...] = ()
    cover: base_cover.Cover = ()
    logged_ts: int | None = None


def shards_of(covers: Iterable[LogSpan]) -> list[IndexShard]:
    """Build the shards of a tenant, in key order, from what lineage.covers returned for its tasks."""
    found: list[IndexShard] = []
    for cover in covers:
        view = cover.log.view
        retained_ts = None if view.state is None else view.state.retained_ts
        if not view.index:
            found.append(IndexShard(cover.span, view.segments, begins_ts=retained_ts or 0, logged_ts=retained_ts))
            continue
        for part in (one.clipped(cover.span) for one in view.index):
            if part is not None:
                times = part.indexed_ts, part.base_ts, part.begins_ts
                bases = base_cover.clipped(view.cover, part.span)
                found.append(IndexShard(part.span, view.segments, part.runs, *times, part.basis, bases, retained_ts))
    return sorted(found, key=lambda shard: shard.span.start)


@dataclass(frozen=True, slots=True)
class TableRange:
    """A range of the record keys of one physical table."""

    table_id: int
    span: KeySpan

    def clip(self, span: KeySpan) -> TableRange | None:
        """The part of this range inside `span`; None if they do not overlap."""
        clipped = self.span.clip(span)
        return None if clipped is None else TableRange(self.table_id, clipped)


def record_prefix(table_id: int) -> bytes:
    """`t{id}_r`, the prefix of the record keys of a physical table."""
    return b"t" + (table_id ^ _SIGN).to_bytes(8, "big") + b"_r"


def records_of(table_id: int) -> TableRange:
    """The range of all record keys of a physical table."""
    prefix = record_prefix(table_id)
    return TableRange(table_id, KeySpan(prefix, prefix[:-1] + b"s"))


_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class GroupInWindow:
    """Row group `index` of a segment. A read uses only its rows with commit_ts in `window`."""

    segment: SegmentRef
    index: int
    window: Window

    @property
    def rows(self) -> int:
        return self.segment.row_groups[self.index].rows

    @property
    def commit_ts_max(self) -> int:
        return self.segment.row_groups[self.index].commit_ts_max


def groups_in_window(shard: IndexShard, window: Window, table_ids: Sequence[int]) -> list[GroupInWindow]:
    """The row groups of the shard's segments that may hold versions of the window, newest first. Versions that are in a
    run are not looked for in segments. `table_ids` ascend."""
    low = max(window.low, shard.indexed_ts)
    if low >= window.high or not table_ids:
        return []
    return _groups(shard, Window(low, window.high), table_ids)


def groups_logged(shard: IndexShard, window: Window, table_id: int) -> list[GroupInWindow] | None:
    """The row groups of the shard's segments that have every change of a table in the window, newest first. None if
    segments with some of these changes may have been dropped, or if these row groups are too large: then the changes
    are in runs and segments together."""
    if shard.logged_ts is None or window.low < shard.logged_ts:
        return None
    found = _groups(shard, window, [table_id])
    return found if sum(part.rows for part in found) <= LOGGED_ROWS and _bytes(found) <= LOGGED_BYTES else None


def groups_with_changes(shard: IndexShard, window: Window, table_id: int) -> list[GroupInWindow]:
    """The row groups of the shard's segments that may have changes of a table in the window, also those that runs have,
    newest first."""
    return _groups(shard, window, [table_id])


def _groups(shard: IndexShard, window: Window, table_ids: Sequence[int]) -> list[GroupInWindow]:
    found = [
        GroupInWindow(segment, index, window)
        for segment in shard.segments
        for index, group in enumerate(segment.row_groups)
        if window.overlaps(group.commit_ts_min, group.commit_ts_max)
        and group.table_id_min <= table_ids[-1]
        and any(group.table_id_min <= one <= group.table_id_max for one in table_ids)
    ]
    return sorted(found, key=lambda part: part.commit_ts_max, reverse=True)


def _bytes(parts: Iterable[GroupInWindow]) -> float:
    """The stored size in bytes of row groups, estimated from the average row of their segments."""
    return sum(part.rows * part.segment.size / max(part.segment.rows, 1) for part in parts)


def runs_of(shard: IndexShard, window: Window, span: KeySpan) -> list[tuple[RunRef, ...]]:
    """The runs of the shard that may hold versions of the window with keys in `span`, newest first. Each run is a tuple
    of those of its objects that may hold such versions, in key order."""
    found: dict[tuple[int | None, int], list[RunRef]] = {}
    for run in shard.runs:
        overlaps = run.high_ts > window.low and (run.low_ts is None or run.low_ts < window.high)
        if overlaps and run.touches(span):
            found.setdefault(run.window, []).append(run)
    newest_first = sorted(found, key=lambda one: one[1], reverse=True)
    runs = [tuple(sorted(found[one], key=lambda run: run.first[1])) for one in newest_first]
    return runs + _chains(run for run in shard.basis if run.touches(span))


def lone_base(runs: Sequence[tuple[RunRef, ...]], window: Window) -> tuple[RunRef, ...]:
    """The objects of the base run if it alone has the versions of the window; otherwise nothing. `runs` are those of
    the window (`runs_of`), and no segment has versions of it. A base run has each key once, and no deletes."""
    if len(runs) != 1 or window.low or any(run.low_ts is not None or run.high_ts > window.high for run in runs[0]):
        return ()
    return runs[0]


def _chains(objects: Iterable[RunRef]) -> list[tuple[RunRef, ...]]:
    """Group objects of several backfills into few runs. The objects of each run have disjoint key ranges, and are in
    key order."""
    chains: list[list[RunRef]] = []
    for run in sorted(objects, key=lambda run: run.first[1]):
        fitting = next((chain for chain in chains if chain[-1].last[1] < run.first[1]), None)
        if fitting is None:
            chains.append([run])
        else:
            fitting.append(run)
    return [tuple(chain) for chain in chains]
