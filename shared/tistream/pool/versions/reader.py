"""Fetches row groups of runs and segments. It only does I/O; plan.py decides what to fetch, and merge.py what to do
with the rows."""

from __future__ import annotations

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
from tistream.format.parquet_footer import ParquetFooter
from tistream.format.run import SCHEMA, RunRef
from tistream.format.segment import SegmentRef
from tistream.pool import run_rows
from tistream.pool.footers import FooterCache
from tistream.pool.key_filter import KeyFilter
from tistream.pool.rows import read_row_groups
from tistream.pool.run_rows import GroupBounds
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

Ints = npt.NDArray[np.int64]

STATISTICS_KEPT = 1 << 16  # row groups whose statistics are cached; those of each take some 300 bytes
FILTERS_KEPT = 32 << 20  # bytes of filters of keys that are cached
_FILTER_ENTRY = 512  # bytes of a cached filter, or of the note that a run has none, besides its bits


@dataclass(frozen=True, slots=True)
class RunGroups:
    """The row groups of a run, in key order. All bounds are inclusive. `bytes` has the estimated bytes of each row
    group's values after decoding."""

    first_keys: tuple[bytes, ...]
    last_keys: tuple[bytes, ...]
    commit_ts_min: Ints
    commit_ts_max: Ints
    rows: Ints
    bytes: Ints


class OpenedGroups(Protocol):
    """Row groups whose bytes were fetched. Columns are decoded only when `read` asks for them."""

    def read(self, names: Sequence[str]) -> pa.Table:
        """Decode these columns of run.SCHEMA, in this order. Raises CorruptObject, NotFoundYet, Unavailable."""


class Reader(Protocol):
    """Fetches row groups of runs and segments of a tenant. Implementations may cache them."""

    def groups(self, run: RunRef) -> RunGroups:
        """List the row groups of a run. Raises CorruptObject, NotFoundYet, Unavailable."""

    def key_filter(self, run: RunRef) -> KeyFilter | None:
        """The filter of a run's keys; None if it has none. Raises the errors of `groups`."""

    def open_run(self, run: RunRef, indexes: Sequence[int]) -> OpenedGroups:
        """Fetch row groups of a run, to be decoded later. Raises the errors of `groups`."""

    def open_segment(self, segment: SegmentRef, index: int) -> OpenedGroups:
        """Fetch a row group of a segment, to be decoded later. Raises the errors of `groups`."""


class StoreReader:
    """A Reader that fetches from an object store, without a cache of rows. Thread-safe."""

    def __init__(self, objects: ObjectStore, footers: FooterCache | None = None) -> None:
        self._objects = objects
        self._footers = FooterCache() if footers is None else footers
        self._lock = new_lock()
        self._known: OrderedDict[str, RunGroups] = OrderedDict()
        self._groups = 0  # row groups in `_known`
        self._filters: OrderedDict[str, KeyFilter | None] = OrderedDict()
        self._filter_bytes = 0  # of `_filters`

    def groups(self, run: RunRef) -> RunGroups:
        """Implement Reader.groups: list the row groups of a run."""
        with self._lock:
            known = self._known.get(run.key)
            if known is not None:
                self._known.move_to_end(run.key)
                return known
        found = _statistics(run_rows.group_bounds(run, run_rows.open_run(self._objects, run, self._footers)))
        with self._lock:
            if run.key not in self._known:
                self._known[run.key] = found
                self._groups += len(found.rows)
            while self._groups > STATISTICS_KEPT and len(self._known) > 1:
                self._groups -= len(self._known.popitem(last=False)[1].rows)
        return found

    def key_filter(self, run: RunRef) -> KeyFilter | None:
        """Implement Reader.key_filter: the filter of a run's keys. It is read together with the run's footer."""
        with self._lock:
            if run.key in self._filters:
                self._filters.move_to_end(run.key)
                return self._filters[run.key]
        found = run_rows.read_key_filter(self._objects, run, self._footers)
        with self._lock:
            if run.key not in self._filters:
                self._filters[run.key] = found
                self._filter_bytes += _weight(found)
            while self._filter_bytes > FILTERS_KEPT and len(self._filters) > 1:
                self._filter_bytes -= _weight(self._filters.popitem(last=False)[1])
        return found

    def open_run(self, run: RunRef, indexes: Sequence[int]) -> OpenedGroups:
        """Implement Reader.open_run: fetch row groups of a run, to be decoded later. The row groups are fetched at
        once, with the fewest requests."""
        opened = run_rows.open_run(self._objects, run, self._footers)
        ranges = [place for index in indexes for place in opened.footer.groups[index].ranges(SCHEMA.names)]
        source = fetch_ranges(self._objects, run.key, run.size, ranges, opened.held)
        return _OpenedRun(run.key, opened.footer, pa.PythonFile(source, mode="r"), tuple(indexes))

    def open_segment(self, segment: SegmentRef, index: int) -> OpenedGroups:
        """Implement Reader.open_segment: fetch a row group of a segment, to be decoded later."""
        return _OpenedSegment(self._objects, segment, index, self._footers)


@dataclass(frozen=True, slots=True)
class _OpenedRun:
    key: str
    footer: ParquetFooter
    source: pa.PythonFile
    indexes: tuple[int, ...]

    def read(self, names: Sequence[str]) -> pa.Table:
        """Implement OpenedGroups.read: decode these columns of run.SCHEMA, in this order."""
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
        """Implement OpenedGroups.read: decode these columns of run.SCHEMA, in this order."""
        return read_row_groups(self.objects, self.segment, [self.index], names, self.footers).select(list(names))


def _weight(found: KeyFilter | None) -> int:
    return _FILTER_ENTRY + (len(found.bits) if found else 0)


def _statistics(bounds: Sequence[GroupBounds]) -> RunGroups:
    return RunGroups(
        tuple(one.first_key for one in bounds),
        tuple(one.last_key for one in bounds),
        np.array([one.commit_ts_min for one in bounds], np.int64),
        np.array([one.commit_ts_max for one in bounds], np.int64),
        np.array([one.rows for one in bounds], np.int64),
        np.array([one.decoded for one in bounds], np.int64),
    )
