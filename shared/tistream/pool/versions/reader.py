"""Fetches row groups of runs and segments for reads of versions. Only I/O: plan.py and merge.py decide."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tistream.concurrency import new_lock
from tistream.errors import CorruptObject
from tistream.format.parquet_footer import Chunk, Group, NeedMore, ParquetFooter, read_footer
from tistream.format.segment import SegmentRef
from tistream.pool.footers import FooterCache
from tistream.pool.parquet_objects import TAIL_BYTES, WHOLE_BYTES
from tistream.pool.rows import read_row_groups
from tistream.pool.versions.plan import SCHEMA, Run
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

Ints = npt.NDArray[np.int64]

STATISTICS_KEPT = 64  # runs whose statistics are held; of a run with 10^4 row groups they take some MB
_FIRST, _LAST = 0, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RunGroups:
    """The row groups of a run, in key order. All bounds are inclusive; `bytes` are those of its pages."""

    first_keys: tuple[bytes, ...]
    last_keys: tuple[bytes, ...]
    commit_ts_min: Ints
    commit_ts_max: Ints
    rows: Ints
    bytes: Ints


class Opened(Protocol):
    """Row groups whose columns are decoded when they are read."""

    def read(self, names: Sequence[str]) -> pa.Table:
        """These columns of plan.SCHEMA, in this order. Raises CorruptObject, NotFoundYet, Unavailable."""


class Reader(Protocol):
    """Reads row groups of a tenant's pool."""

    def groups(self, run: Run) -> RunGroups:
        """The row groups of a run. Raises CorruptObject, NotFoundYet, Unavailable."""

    def open_run(self, run: Run, indexes: Sequence[int]) -> Opened:
        """Row groups of a run. Raises as `groups`."""

    def open_segment(self, segment: SegmentRef, index: int) -> Opened:
        """A row group of a segment. Raises as `groups`."""


class StoreReader:
    """A Reader of an object store, without a cache of rows. Thread-safe."""

    def __init__(self, objects: ObjectStore, footers: FooterCache | None = None) -> None:
        self._objects = objects
        self._footers = FooterCache() if footers is None else footers
        self._lock = new_lock()
        self._known: OrderedDict[str, RunGroups] = OrderedDict()

    def groups(self, run: Run) -> RunGroups:
        """See Reader."""
        with self._lock:
            known = self._known.get(run.key)
            if known is not None:
                self._known.move_to_end(run.key)
                return known
        found = _statistics(self._footer(run)[0].groups)
        with self._lock:
            self._known[run.key] = found
            while len(self._known) > STATISTICS_KEPT:
                self._known.popitem(last=False)
        return found

    def open_run(self, run: Run, indexes: Sequence[int]) -> Opened:
        """See Reader. The row groups are fetched at once, with the fewest requests."""
        footer, held = self._footer(run)
        ranges = [place for index in indexes for place in footer.groups[index].ranges(SCHEMA.names)]
        source = fetch_ranges(self._objects, run.key, run.size, ranges, held)
        return _OpenedRun(run.key, footer, pa.PythonFile(source, mode="r"), tuple(indexes))

    def open_segment(self, segment: SegmentRef, index: int) -> Opened:
        """See Reader."""
        return _OpenedSegment(self._objects, segment, index, self._footers)

    def _footer(self, run: Run) -> tuple[ParquetFooter, list[tuple[int, bytes]]]:
        """The run's footer, and the bytes that were fetched to get it as (offset, bytes)."""
        known = self._footers.get(run.key)
        if known is not None:
            return known, []
        length = run.size if run.size <= WHOLE_BYTES else TAIL_BYTES
        while True:
            tail, size = self._objects.get_tail(run.key, length)
            if size != run.size:
                raise CorruptObject(run.key, f"has {size} bytes; its manifest states {run.size}")
            if len(tail) == size and f"{zlib.crc32(tail):08x}" != run.checksum:
                raise CorruptObject(run.key, f"fails its checksum {run.checksum}")
            footer = read_footer(run.key, tail, size)
            if not isinstance(footer, NeedMore):
                break
            length = footer.length
        rows = sum(group.rows for group in footer.groups)
        if rows != run.rows:
            raise CorruptObject(run.key, f"has {rows} rows; its manifest states {run.rows}")
        self._footers.put(run.key, footer)
        return footer, [(size - len(tail), tail)]


@dataclass(frozen=True, slots=True)
class _OpenedRun:
    key: str
    footer: ParquetFooter
    source: pa.PythonFile
    indexes: tuple[int, ...]

    def read(self, names: Sequence[str]) -> pa.Table:
        """See Opened."""
        schema = pa.schema([SCHEMA.field(name) for name in names])
        try:
            file = pq.ParquetFile(
                self.source, metadata=self.footer.metadata, pre_buffer=False, page_checksum_verification=True
            )
            found = file.read_row_groups(list(self.indexes), columns=list(names), use_threads=False)
            return found.select(list(names)).cast(schema)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise CorruptObject(self.key, f"row groups {list(self.indexes)} cannot be decoded: {error}") from error


@dataclass(frozen=True, slots=True)
class _OpenedSegment:
    objects: ObjectStore
    segment: SegmentRef
    index: int
    footers: FooterCache

    def read(self, names: Sequence[str]) -> pa.Table:
        """See Opened."""
        return read_row_groups(self.objects, self.segment, [self.index], names, self.footers).select(list(names))


def _statistics(groups: Sequence[Group]) -> RunGroups:
    """The bounds of row groups. A missing bound of a key widens to that of its neighbours, of a ts to every ts."""
    keys = [_chunk(group, "key") for group in groups]
    stamps = [_chunk(group, "commit_ts") for group in groups]
    lows: list[bytes] = []
    for chunk in keys:
        lows.append((lows[-1] if lows else b"") if chunk.low is None else chunk.low)
    highs: list[bytes] = []
    for at in range(len(keys) - 1, -1, -1):
        high = keys[at].high
        highs.append((highs[-1] if highs else _ENDLESS) if high is None else high)
    return RunGroups(
        tuple(lows),
        tuple(reversed(highs)),
        np.array([_FIRST if chunk.low is None else _int64(chunk.low) for chunk in stamps], np.int64),
        np.array([_LAST if chunk.high is None else _int64(chunk.high) for chunk in stamps], np.int64),
        np.array([group.rows for group in groups], np.int64),
        np.array([group.range[1] for group in groups], np.int64),
    )


_ENDLESS = b"\xff" * 16  # above every key of a table


def _chunk(group: Group, name: str) -> Chunk:
    return next(chunk for chunk in group.chunks if chunk.column == name)


def _int64(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)
