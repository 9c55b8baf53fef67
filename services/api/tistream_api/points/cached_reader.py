"""A reader of the pool that shares the cache of pulls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from tistream.errors import TiStreamError
from tistream.format.run import RunRef
from tistream.pool.at_once import AtOnce, lots
from tistream.pool.footers import FooterCache
from tistream.pool.versions.reader import OpenedGroups, OpenedRun, SegmentGroup, StoreReader, WantedGroups
from tistream.read.group_cache import GroupCache
from tistream.read.plan import GroupRef
from tistream.storage.object_store import ObjectStore

AHEAD_BYTES = 2 << 20  # stored bytes of a row group up to which it is read at the same time as others


class CachedReader:
    """A Reader that uses the cache of pulls for row groups of segments. Row groups of runs are not cached: a read of a
    whole table would evict everything else."""

    def __init__(self, objects: ObjectStore, cache: GroupCache, footers: FooterCache) -> None:
        self._at_once = AtOnce("objects")
        self._store = StoreReader(objects, footers, self._at_once)
        self._cache = cache

    def open_runs(self, runs: Sequence[RunRef], filtered: Collection[str] = ()) -> Iterator[OpenedRun]:
        """Implement Reader.open_runs: list the row groups of runs, and read filters."""
        return self._store.open_runs(runs, filtered)

    def fetch(self, wanted: Sequence[WantedGroups]) -> Iterator[OpenedGroups]:
        """Implement Reader.fetch: fetch row groups of runs, to be decoded later."""
        return self._store.fetch(wanted)

    def open_segments(self, groups: Sequence[SegmentGroup]) -> Iterator[OpenedGroups]:
        """Implement Reader.open_segments: bring row groups of segments into the cache, and yield them in the order of
        `groups`. Those of one segment are read one after the other, because they share its footer. Large ones are read
        when their rows are needed."""
        for lot in lots(groups):
            segments: dict[str, list[GroupRef]] = {}
            for segment, index in lot:
                segments.setdefault(segment.key, []).append(GroupRef(segment, index))
            brought, done = self._at_once.map(self._bring, list(segments.values())), set[str]()
            for segment, index in lot:
                if segment.key not in done:
                    next(brought)
                    done.add(segment.key)
                yield _CachedGroup(self._cache, GroupRef(segment, index))

    def close(self) -> None:
        """End the threads of its requests. Reads continue without them."""
        self._at_once.close()

    def _bring(self, groups: Sequence[GroupRef]) -> None:
        with suppress(TiStreamError):  # raised again by `read`, if the rows are needed
            for group in groups:
                if group.bytes_per_row * group.info.rows <= AHEAD_BYTES:
                    self._cache.rows(group)


@dataclass(frozen=True, slots=True)
class _CachedGroup:
    cache: GroupCache
    group: GroupRef

    def read(self, names: Sequence[str]) -> pa.Table:
        """Implement OpenedGroups.read: decode these columns of run.SCHEMA, in this order."""
        return self.cache.rows(self.group).select(list(names))
