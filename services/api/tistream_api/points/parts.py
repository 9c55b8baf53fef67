"""Answers RowParts and ChangeParts: where to cut a read of a table, so that its parts can be read at the same time.

The cuts are where row groups end. Between two parts no row is missing and none is read twice, wherever the cut is; a
row group that lies across a cut is fetched for both parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tistream import trace
from tistream.follow.tenant_view import TenantView
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.plan import IndexShard, TableRange, groups_in_window, runs_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.pool.versions.reader import Reader
from tistream.read.cursor import Scope
from tistream.read.plan import GroupRef, groups_in
from tistream.wire.api import ChangePart, ChangeParts, RowPart, RowParts
from tistream_api.points import point_cursor
from tistream_api.points.named_table import check_complete, ranges_asked, table_at
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.points.point_reads import PointReads, table_window
from tistream_api.pull.admitted import Admitted, ReadCaller
from tistream_api.request.point_queries import ChangePartsRequest, RowPartsRequest

T = TypeVar("T")
_PAD = b"\xff" * 32


@dataclass(frozen=True, slots=True)
class Mark:
    """A place where a read may be cut: after `at`, which is a raw key or a commit_ts. `rows` is the number of rows of
    the row groups that end there, or, in a result of `cuts`, of the part that ends there."""

    at: Any
    rows: int


def cuts(marks: Iterable[Mark], parts: int) -> list[Mark]:
    """Choose at most `parts` marks as the ends of parts with about equally many rows. Returns them in ascending order;
    the last one is the highest mark."""
    ordered = sorted(marks, key=lambda mark: mark.at)
    total, found, rows, done = sum(mark.rows for mark in ordered), list[Mark](), 0, 0
    for number, mark in enumerate(ordered):
        rows += mark.rows
        last = number == len(ordered) - 1
        full = rows > 0 and len(found) < parts - 1 and (done + rows) * parts >= total * (len(found) + 1)
        if last or (full and ordered[number + 1].at > mark.at):
            found.append(Mark(mark.at, rows))
            done, rows = done + rows, 0
    if len(found) > 1 and not found[-1].rows:
        found[-2:] = [Mark(found[-1].at, found[-2].rows)]
    return found


def row_marks(reads: PoolReads, ts: int, ranges: Sequence[TableRange]) -> list[Mark]:
    """The places, as raw keys, where a read of `ranges` as of `ts` may be cut: the ends of the row groups of runs, and
    of the key ranges of shards. Raises Gone, CorruptObject, Unavailable."""
    return reads.repeated(lambda: _row_marks(reads.shards(), reads.reader, Window(0, ts), ranges))


def _row_marks(
    shards: Sequence[IndexShard], reader: Reader, window: Window, ranges: Sequence[TableRange]
) -> list[Mark]:
    found = list[Mark]()
    for wanted in ranges:
        for shard in shards:
            clipped = wanted.clip(shard.span)
            if clipped is not None:
                found += _marks_of_runs(shard, reader, window, clipped.span)
                rows = sum(one.rows for one in groups_in_window(shard, window, [clipped.table_id]))
                found.append(Mark(_below(clipped.span.end), rows))
    return found


def _marks_of_runs(shard: IndexShard, reader: Reader, window: Window, span: KeySpan) -> list[Mark]:
    found = []
    for opened in reader.open_runs([run for objects in runs_of(shard, window, span) for run in objects]):
        groups = opened.groups
        for first, last, rows in zip(groups.first_keys, groups.last_keys, groups.rows.tolist(), strict=True):
            if span.touches(first, last):
                found.append(Mark(min(last, _below(span.end)), rows))
    return found


def _below(end: bytes) -> bytes:
    """A key below `end`, and above nearly all keys that are."""
    return end[:-1] if end[-1:] == b"\0" else end[:-1] + bytes([end[-1] - 1]) + _PAD


def change_marks(groups: Iterable[GroupRef], window: Window) -> list[Mark]:
    """The places, as commit_ts, where a pull of `window` may be cut: the highest commit_ts of each row group, but at
    most the end of the window."""
    return [Mark(min(group.info.commit_ts_max, window.high), group.info.rows) for group in groups]


@dataclass(slots=True)
class PartReads:
    """Answers RowParts and ChangeParts for every tenant, with the limits of `points`. Thread-safe."""

    points: PointReads

    def rows(self, view: TenantView, scope: Scope, ask: RowPartsRequest, read_caller: ReadCaller) -> RowParts:
        """Answer RowParts: cut a read of a table's rows as of `ask.ts` into at most `ask.parts` parts. Each
        part has the `cursor` and the `until` with which ListRows reads it. Raises InvalidRequest and its
        subclasses, Unavailable, TooManyRequests, CorruptObject."""

        def found() -> RowParts:
            ts = self.points.times.readable(view, "ts", ask.ts)
            version = table_at(view.source, scope, ts, read_caller.may_read)
            reads = self.points.pool_reads(view, ts)
            check_complete(view.source, reads, [version], ts)
            ranges, _ = ranges_asked(version, None, ask.from_key, ask.to_key)

            def cursor(key: bytes) -> str:
                return point_cursor.encode(Kind.ROWS, scope, PointPosition(0, ts, key=key))

            chosen = cuts(row_marks(reads, ts, ranges), ask.parts)
            parts, after = [], b""
            for number, mark in enumerate(chosen):
                until = None if number == len(chosen) - 1 else cursor(mark.at)
                parts.append(RowPart(cursor=cursor(after), until=until, rows=mark.rows))
                after = mark.at
            return RowParts(ts=str(ts), parts=parts)

        return self._answer(view, "RowParts", read_caller, found)

    def changes(self, view: TenantView, scope: Scope, ask: ChangePartsRequest, read_caller: ReadCaller) -> ChangeParts:
        """The answer of ChangeParts. Raises the errors of `rows`."""

        def found() -> ChangeParts:
            window = table_window(self.points, view, scope, ask.low, ask.high)
            ids = view.source.physical_ids(scope, window)
            groups = groups_in(view.source.segments(window), window, ids)
            parts, begin = [], window.low
            for mark in cuts([*change_marks(groups, window), Mark(window.high, 0)], ask.parts):
                if mark.at > begin:
                    parts.append(ChangePart(start_ts=str(begin), end_ts=str(mark.at), rows=mark.rows))
                    begin = mark.at
            return ChangeParts(parts=parts)

        return self._answer(view, "ChangeParts", read_caller, found)

    def _answer(self, view: TenantView, call: str, read_caller: ReadCaller, found: Callable[[], T]) -> T:
        admitted: Admitted = self.points.admission.begin(view, call, read_caller, trace.here())
        try:
            read_caller.has_slot()
            view.wait_fresh(read_caller.alive)
            admitted.room.take()
            steps = (one() for one in [found])  # made inside a working step
            return next(self.points.working.each(admitted.tenant, steps, read_caller.alive))
        finally:
            admitted.release()
