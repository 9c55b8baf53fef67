"""A reader of the pool that shares the cache of pulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.pool.footers import FooterCache
from tistream.pool.key_filter import KeyFilter
from tistream.pool.versions.reader import OpenedGroups, RunGroups, StoreReader
from tistream.read.group_cache import GroupCache
from tistream.read.plan import GroupRef
from tistream.storage.object_store import ObjectStore


class CachedReader:
    """A Reader that uses the cache of pulls for row groups of segments. Row groups of runs are not cached: a read of a
    whole table would evict everything else."""

    def __init__(self, objects: ObjectStore, cache: GroupCache, footers: FooterCache) -> None:
        self._store = StoreReader(objects, footers)
        self._cache = cache

    def groups(self, run: RunRef) -> RunGroups:
        """Implement Reader.groups: list the row groups of a run."""
        return self._store.groups(run)

    def key_filter(self, run: RunRef) -> KeyFilter | None:
        """Implement Reader.key_filter: the filter of a run's keys."""
        return self._store.key_filter(run)

    def open_run(self, run: RunRef, indexes: Sequence[int]) -> OpenedGroups:
        """Implement Reader.open_run: fetch row groups of a run, to be decoded later."""
        return self._store.open_run(run, indexes)

    def open_segment(self, segment: SegmentRef, index: int) -> OpenedGroups:
        """Implement Reader.open_segment: fetch a row group of a segment, to be decoded later."""
        return _CachedGroup(self._cache, GroupRef(segment, index))


@dataclass(frozen=True, slots=True)
class _CachedGroup:
    cache: GroupCache
    group: GroupRef

    def read(self, names: Sequence[str]) -> pa.Table:
        """Implement OpenedGroups.read: decode these columns of run.SCHEMA, in this order."""
        return self.cache.rows(self.group).select(list(names))
