"""A cache of decoded row groups, and of results that pulls computed from them. Segments never change, so entries do not
become stale. Entries of a tenant with its own encryption key expire, because the key may be revoked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tistream import trace
from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.pool.footers import FooterCache
from tistream.pool.rows import open_segment, read_row_group
from tistream.read.plan import GroupRef
from tistream.read.shared_work import SharedWork
from tistream.read.source_contract import GroupIndex, GroupStatistics
from tistream.storage import layout
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.storage.object_store import ObjectStore

WORK_PART = 4  # computed results get 1/WORK_PART of the cache
INDEX_COLUMNS = ("table_id", "commit_ts")
# A row group below this size is read whole even if only its index is needed, because its rows will probably be needed
# next.
_SMALL_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CacheExpiry:
    """How long row groups may stay in the cache. Those of a tenant with its own encryption key stay for `keyed_ms`,
    because the key may be revoked while the rows are in memory. Others stay until they are evicted."""

    keys: TenantKeys
    keyed_ms: int
    clock: Clock

    def until_ms(self, key: str, *, read: bool = True) -> int | None:
        """The time, in monotonic ms, until which the row groups of an object may be cached; None: no limit. If they
        were not read just now but at an unknown earlier time, `read` is False; those of a tenant with its own key may
        then not be cached at all."""
        if self.keys.known(layout.tenant_of(key)) is None:
            return None
        return self.clock.monotonic_ms() + (self.keyed_ms if read else 0)

    def over(self, until_ms: int | None) -> bool:
        """Whether the time `until_ms`, in monotonic ms, has passed; False for None."""
        return until_ms is not None and self.clock.monotonic_ms() >= until_ms


def _never(until_ms: int | None) -> bool:
    """What CacheExpiry.over is where no row group has a limit."""
    del until_ms
    return False


@dataclass(frozen=True, slots=True)
class _Kept:
    table: pa.Table
    until_ms: int | None


class GroupCache:
    """An LRU cache of decoded row groups, bounded by their bytes in memory and shared by all pulls. Thread-safe. Its
    member `work` caches results that pulls computed from row groups."""

    def __init__(self, objects: ObjectStore, bytes_max: int, keeping: CacheExpiry | None = None) -> None:
        self._objects = objects
        self._keeping = keeping
        # Not a method of this cache: such a cycle would keep the row groups of a dropped cache until a collection.
        self._over = _never if keeping is None else keeping.over
        self.work = SharedWork(bytes_max // WORK_PART, self._over)
        self._bytes_max = bytes_max - bytes_max // WORK_PART
        self._lock = new_lock()
        self._held: OrderedDict[tuple[str, int, bool], _Kept] = OrderedDict()
        self._bytes = 0
        self._footers = FooterCache()
        self.hits = self.misses = 0  # of row groups

    def rows(self, group: GroupRef) -> pa.Table:
        """The rows of a whole row group (tistream.format.segment.SCHEMA), from the cache or the object store. Raises
        NotFoundYet, CorruptObject, Unavailable."""
        key = (group.segment.key, group.index, True)
        return self._get(key, lambda: self._read(group))

    def index(self, group: GroupRef) -> GroupIndex:
        """The table_id and commit_ts of a row group's rows, from the cache or the object store. Raises the errors of
        `rows`."""
        key = (group.segment.key, group.index, True)
        with self._lock:
            whole = key in self._held
        if whole or group.bytes_per_row * group.info.rows <= _SMALL_BYTES:
            table = self.rows(group)
        else:
            table = self._get(
                (*key[:2], False),
                lambda: self._read(group, INDEX_COLUMNS),
            )
        table_id, commit_ts = (table.column(name).to_numpy() for name in INDEX_COLUMNS)
        return GroupIndex(table_id, commit_ts, table.nbytes)

    def statistics(self, group: GroupRef) -> GroupStatistics:
        """What the segment's footer states of a row group. The footer is cached. Raises the errors of `rows`."""
        footer = open_segment(self._objects, group.segment, self._footers).footer
        bounds = {one.column: (one.low, one.high) for one in footer.groups[group.index].chunks}
        (low, high), (least, most) = bounds["key"], bounds["op"]
        keys = None if low is None or high is None else (low, high)
        ops = (
            None if least is None or most is None else (int.from_bytes(least, "little"), int.from_bytes(most, "little"))
        )
        return GroupStatistics(keys, ops)

    def until_ms(self, groups: Iterable[GroupRef]) -> int | None:
        """The time, in monotonic ms, until which a result computed from these row groups may be cached: the earliest of
        their own limits. None: no limit."""
        if self._keeping is None:
            return None
        found = []
        for group in groups:
            with self._lock:
                kept = self._held.get((group.segment.key, group.index, True))
            # Row groups that were evicted may have been read at any time.
            until_ms = kept.until_ms if kept is not None else self._keeping.until_ms(group.segment.key, read=False)
            if until_ms is not None:
                found.append(until_ms)
        return min(found, default=None)

    def _read(self, group: GroupRef, columns: Sequence[str] | None = None) -> pa.Table:
        with trace.child("read segment", attributes={"tistream.rows": group.info.rows}):
            return read_row_group(self._objects, group.segment, group.index, columns, self._footers)

    def _get(self, key: tuple[str, int, bool], read: Callable[[], pa.Table]) -> pa.Table:
        with self._lock:
            found = self._held.get(key)
            if found is not None and self._over(found.until_ms):
                self._bytes -= self._held.pop(key).table.nbytes
            elif found is not None:
                self._held.move_to_end(key)
                self.hits += 1
                return found.table
            self.misses += 1
        # The expiry counts from before the read, when the key was valid.
        until_ms = None if self._keeping is None else self._keeping.until_ms(key[0])
        table = read().combine_chunks()
        with self._lock:
            if key not in self._held:
                self._held[key] = _Kept(table, until_ms)
                self._bytes += table.nbytes
            while self._bytes > self._bytes_max and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1].table.nbytes
        return table
