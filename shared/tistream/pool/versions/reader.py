"""Fetches row groups of runs and segments. It only does I/O; plan.py decides what to fetch, and merge.py what to do
with the rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
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
from tistream.pool.at_once import AtOnce, lots
from tistream.pool.footers import FooterCache
from tistream.pool.key_filter import KeyFilter
from tistream.pool.parquet_objects import WHOLE_BYTES, OpenedObject
from tistream.pool.rows import open_segment, read_opened_groups
from tistream.pool.run_rows import GroupBounds
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

Ints = npt.NDArray[np.int64]

STATISTICS_KEPT = 1 << 16  # row groups whose statistics are cached; those of each take some 300 bytes
FILTERS_KEPT = 32 << 20  # bytes of filters of keys that are cached
_FILTER_ENTRY = 512  # bytes of a cached filter, or of the note that a run has none, besides its bits


@dataclass(frozen=True, slots=True)
class RunGroups:
    """The row groups of one object of a run, in key order. All bounds are inclusive. `bytes` has the estimated bytes of
    each row group's values after decoding."""

    first_keys: tuple[bytes, ...]
    last_keys: tuple[bytes, ...]
    commit_ts_min: Ints
    commit_ts_max: Ints
    rows: Ints
    bytes: Ints


class OpenedGroups(Protocol):
    """Row groups that can be read. Their bytes were fetched, except those of large segments, which `read` fetches.
    Columns are decoded only when `read` asks for them."""

    def read(self, names: Sequence[str]) -> pa.Table:
        """Decode these columns of run.SCHEMA, in this order. Raises CorruptObject, NotFoundYet, Unavailable."""


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """An object of a run whose row groups are known. `key_filter` is None if the object has no filter, or if no filter
    was asked for. `opened` is None if nothing was read for it now. A read that keeps it keeps a small object whole, and
    needs no further request for it."""

    run: RunRef
    groups: RunGroups
    key_filter: KeyFilter | None = None
    opened: OpenedObject | None = None


WantedGroups = tuple[OpenedRun, Sequence[int]]
"""Row groups of a run, by their indexes."""
SegmentGroup = tuple[SegmentRef, int]
"""A row group of a segment, by its index."""


class Reader(Protocol):
    """Fetches row groups of runs and segments of a tenant. Implementations may cache them. Each method yields its
    results in the order of what is asked for, and fetches a few of them at the same time (at_once.LOT). An error is
    raised in the place of the result: CorruptObject, NotFoundYet, Unavailable."""

    def open_runs(self, runs: Sequence[RunRef], filtered: Collection[str] = ()) -> Iterator[OpenedRun]:
        """List the row groups of objects of runs. `filtered` has the object keys of those whose filters are read
        too."""

    def fetch(self, wanted: Sequence[WantedGroups]) -> Iterator[OpenedGroups]:
        """Fetch row groups of runs, to be decoded later. The row groups of one element of `wanted` are one result."""

    def open_segments(self, groups: Sequence[SegmentGroup]) -> Iterator[OpenedGroups]:
        """Fetch row groups of segments, to be decoded later."""


class StoreReader:
    """A Reader that fetches from an object store, without a cache of rows. Thread-safe. `at_once` has the threads for
    its requests, if it shares them with other readers; None means threads of its own."""

    def __init__(self, objects: ObjectStore, footers: FooterCache | None = None, at_once: AtOnce | None = None) -> None:
        self._objects = objects
        self._footers = FooterCache() if footers is None else footers
        self._at_once = AtOnce("objects") if at_once is None else at_once
        self._lock = new_lock()
        self._known: OrderedDict[str, RunGroups] = OrderedDict()
        self._groups = 0  # row groups in `_known`
        self._filters: OrderedDict[str, KeyFilter | None] = OrderedDict()
        self._filter_bytes = 0  # of `_filters`

    def open_runs(self, runs: Sequence[RunRef], filtered: Collection[str] = ()) -> Iterator[OpenedRun]:
        """Implement Reader.open_runs: list row groups, and read filters. A filter is read together with the footer."""
        for lot in lots(runs):
            cached = [self._cached(run, filtered=run.key in filtered) for run in lot]
            missing = [run for run, one in zip(lot, cached, strict=True) if one is None]
            read = self._at_once.map(lambda run: self._read(run, filtered=run.key in filtered), missing)
            for one in cached:
                yield next(read) if one is None else one

    def _cached(self, run: RunRef, *, filtered: bool) -> OpenedRun | None:
        """The run from the caches; None if they do not have it all."""
        with self._lock:
            groups = self._known.get(run.key)
            if groups is None or (filtered and run.key not in self._filters):
                return None
            self._known.move_to_end(run.key)
            if not filtered:
                return OpenedRun(run, groups)
            self._filters.move_to_end(run.key)
            return OpenedRun(run, groups, self._filters[run.key])

    def _read(self, run: RunRef, *, filtered: bool) -> OpenedRun:
        """Read the footer of a run, and its filter."""
        if filtered:
            opened, kept = run_rows.open_filtered_run(self._objects, run, self._footers)
        else:
            opened, kept = run_rows.open_run(self._objects, run, self._footers), None
        groups = _statistics(run_rows.group_bounds(run, opened))
        with self._lock:
            if run.key not in self._known:
                self._known[run.key] = groups
                self._groups += len(groups.rows)
            while self._groups > STATISTICS_KEPT and len(self._known) > 1:
                self._groups -= len(self._known.popitem(last=False)[1].rows)
            if filtered and run.key not in self._filters:
                self._filters[run.key] = kept
                self._filter_bytes += _weight(kept)
            while self._filter_bytes > FILTERS_KEPT and len(self._filters) > 1:
                self._filter_bytes -= _weight(self._filters.popitem(last=False)[1])
        return OpenedRun(run, groups, kept, opened.without_tail())

    def fetch(self, wanted: Sequence[WantedGroups]) -> Iterator[OpenedGroups]:
        """Implement Reader.fetch: fetch row groups of runs, with the fewest requests for each object."""
        return self._at_once.map(self._fetched, wanted)

    def _fetched(self, wanted: WantedGroups) -> OpenedGroups:
        one, indexes = wanted
        run, opened = one.run, one.opened or run_rows.open_run(self._objects, one.run, self._footers)
        ranges = [place for index in indexes for place in opened.footer.groups[index].ranges(SCHEMA.names)]
        source = fetch_ranges(self._objects, run.key, run.size, ranges, opened.held)
        return _FetchedGroups(run.key, opened.footer, pa.PythonFile(source, mode="r"), tuple(indexes))

    def open_segments(self, groups: Sequence[SegmentGroup]) -> Iterator[OpenedGroups]:
        """Implement Reader.open_segments: fetch small segments whole, and only the footer of each larger one.
        The row groups of a larger segment are fetched when `read` of the result is called."""
        for lot in lots(groups):
            segments = {segment.key: segment for segment, _ in lot}
            read = self._at_once.map(self._opened_segment, list(segments.values()))
            opened: dict[str, OpenedObject] = {}
            for segment, index in lot:
                if segment.key not in opened:
                    opened[segment.key] = next(read)
                yield _OpenedSegment(self._objects, segment, index, opened[segment.key])

    def close(self) -> None:
        """End the threads for requests, also if other readers share them. Later reads make their requests in the
        threads of their callers."""
        self._at_once.close()

    def _opened_segment(self, segment: SegmentRef) -> OpenedObject:
        footers = None if segment.size <= WHOLE_BYTES else self._footers  # a small one is read here, not by `read`
        return open_segment(self._objects, segment, footers).without_tail()


@dataclass(frozen=True, slots=True)
class _FetchedGroups:
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
    opened: OpenedObject

    def read(self, names: Sequence[str]) -> pa.Table:
        """Implement OpenedGroups.read: decode these columns of run.SCHEMA, in this order."""
        return read_opened_groups(self.objects, self.segment, self.opened, [self.index], names).select(list(names))


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
