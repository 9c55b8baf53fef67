"""Which objects and row groups hold the versions of some keys as of a ts. Pure.

A read covers a window (low, high] of commit_ts: a read as of T has the window (0, T], and the changes between A and B
are in (A, B]. Of each key, the newest version in the window counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tistream.format.segment import SegmentRef
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.lineage import Cover

SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("txn_source", pa.int64()),
    ]
)


class Run(Protocol):
    """A reference to a run, an immutable Parquet object of SCHEMA: by table_id, key, commit_ts descending, start_ts.

    A run holds the versions in (low_ts, high_ts] of its keys. A run without low_ts is a base: of each key it holds the
    newest version at or below high_ts, and no deletes. `first` and `last` are (table_id, key).
    """

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def checksum(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def low_ts(self) -> int | None: ...
    @property
    def high_ts(self) -> int: ...
    @property
    def first(self) -> tuple[int, bytes]: ...
    @property
    def last(self) -> tuple[int, bytes]: ...


@dataclass(frozen=True, slots=True)
class Shard:
    """The committed versions of the keys in `span`, as one task's log lists them.

    `runs` hold every version up to `indexed_ts`, `segments` every version above it. Shards of split tasks may list the
    same objects: only the rows with keys in the span belong to the shard.
    """

    span: KeySpan
    segments: tuple[SegmentRef, ...]
    runs: tuple[Run, ...] = ()
    indexed_ts: int = 0


def shards_of(covers: Iterable[Cover]) -> list[Shard]:
    """The shards of a tenant, in key order, from the logs that lineage.covers returned for its tasks."""
    found = [Shard(cover.span, cover.log.view.segments, cover.log.view.basis.runs) for cover in covers]
    return sorted(found, key=lambda shard: shard.span.start)


@dataclass(frozen=True, slots=True)
class TableRange:
    """Record keys of one physical table."""

    table_id: int
    span: KeySpan

    def clip(self, span: KeySpan) -> TableRange | None:
        """The keys that are in `span` too; None without any."""
        clipped = self.span.clip(span)
        return None if clipped is None else TableRange(self.table_id, clipped)


def record_prefix(table_id: int) -> bytes:
    """The bytes with which the record keys of a physical table begin."""
    return b"t" + (table_id ^ _SIGN).to_bytes(8, "big") + b"_r"


def records_of(table_id: int) -> TableRange:
    """Every record key of a physical table."""
    prefix = record_prefix(table_id)
    return TableRange(table_id, KeySpan(prefix, prefix[:-1] + b"s"))


_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class Part:
    """Row group `index` of a segment, of whose rows those with commit_ts in `window` count."""

    segment: SegmentRef
    index: int
    window: Window

    @property
    def rows(self) -> int:
        return self.segment.row_groups[self.index].rows

    @property
    def commit_ts_max(self) -> int:
        return self.segment.row_groups[self.index].commit_ts_max


def parts_of(shard: Shard, window: Window, table_ids: Sequence[int]) -> list[Part]:
    """The row groups of the shard's segments that may hold versions of the window which no run holds, newest first.
    `table_ids` ascend."""
    low = max(window.low, shard.indexed_ts)
    if low >= window.high or not table_ids:
        return []
    rest = Window(low, window.high)
    found = [
        Part(segment, index, rest)
        for segment in shard.segments
        for index, group in enumerate(segment.row_groups)
        if rest.overlaps(group.commit_ts_min, group.commit_ts_max)
        and group.table_id_min <= table_ids[-1]
        and any(group.table_id_min <= one <= group.table_id_max for one in table_ids)
    ]
    return sorted(found, key=lambda part: part.commit_ts_max, reverse=True)


def runs_of(shard: Shard, window: Window, span: KeySpan) -> list[Run]:
    """The shard's runs that may hold versions of the window with keys in `span`, newest first."""
    found = [
        run
        for run in shard.runs
        if run.high_ts > window.low
        and (run.low_ts is None or run.low_ts < window.high)
        and run.last[1] >= span.start
        and (not span.end or run.first[1] < span.end)
    ]
    return sorted(found, key=lambda run: run.high_ts, reverse=True)
