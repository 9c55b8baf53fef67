"""The versions and locks of all keys. Applied commands add them, and scans read them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from sortedcontainers import SortedDict

from tistream_upstream.emulator.model.timeline import COMMIT, COMMITTED, DELETE, PREWRITE, PUT, ROLLBACK, Row

_LOSSY = 8  # txn_source >> 8 marks changes that TiKV's stream leaves out


class Mvcc:
    """The versions that were written since the cluster's beginning, and the live locks of prewrites."""

    def __init__(self) -> None:
        self._versions: SortedDict[bytes, list[Row]] = SortedDict()  # rows COMMITTED, oldest first
        self._locks: SortedDict[bytes, Row] = SortedDict()

    @property
    def locks(self) -> int:
        """The number of live locks of prewrites."""
        return len(self._locks)

    def lock(self, key: bytes) -> Row | None:
        """The live lock of a key; None if it has none."""
        found: Row | None = self._locks.get(key)
        return found

    def apply(self, row: Row) -> None:
        """Apply one row of a command: add or remove a lock, or add a version."""
        if row.type == PREWRITE:
            self._prewrite(row)
        elif row.type == COMMITTED:
            self._versions.setdefault(row.key, []).append(row)
        elif row.type in (COMMIT, ROLLBACK):
            lock = self.lock(row.key)
            if lock is None or lock.start_ts != row.start_ts:
                return
            del self._locks[row.key]
            if row.type == COMMIT:
                self._versions.setdefault(row.key, []).append(lock._replace(type=COMMITTED, commit_ts=row.commit_ts))

    def _prewrite(self, row: Row) -> None:
        lock = self.lock(row.key)
        if lock is not None and lock.start_ts == row.start_ts:
            if row.generation < lock.generation:
                return
            if row.generation == lock.generation and row.op == PUT and not row.value:
                return  # a lock that is written again does not hold a long value
        self._locks[row.key] = row

    def changes(self, start: bytes, end: bytes, above: int) -> Iterator[Row]:
        """Yield the locks of the raw keys [start, end) as PREWRITE rows, and their versions above the ts `above` as
        COMMITTED rows. They are ordered by key; for each key, the lock comes first, then the versions, newest first. An
        empty `end` is no upper bound. Locks and versions whose txn_source has bits above the lowest eight, which TiKV's
        stream leaves out, are not returned."""
        keys = set(self._locks.irange(start, end or None, (True, False)))
        keys.update(self._versions.irange(start, end or None, (True, False)))
        for key in sorted(keys):
            lock = self.lock(key)
            if lock is not None and not lock.txn_source >> _LOSSY:
                yield lock
            for version in reversed(self._versions.get(key, ())):
                if version.commit_ts > above and not version.txn_source >> _LOSSY:
                    yield version

    def lowest_lock(self, start: bytes, end: bytes) -> int | None:
        """The lowest start_ts of the locks in [start, end); None if there is no lock. An empty `end` is no upper
        bound."""
        return min(
            (self._locks[key].start_ts for key in self._locks.irange(start, end or None, (True, False))), default=None
        )

    def read(self, start: bytes, end: bytes, ts: int) -> Iterator[tuple[bytes, Row]]:
        """The newest version at or below `ts` of each key in [start, end), in key order. An empty `end` is no upper
        bound. Deletes are left out. If a key has a lock with a start_ts at or below `ts`, the lock is returned in place
        of the version."""
        keys = set(self._locks.irange(start, end or None, (True, False)))
        keys.update(self._versions.irange(start, end or None, (True, False)))
        for key in sorted(keys):
            lock = self.lock(key)
            if lock is not None and lock.start_ts <= ts:
                yield key, lock
                continue
            versions = self._versions.get(key, [])
            at = bisect_right(versions, ts, key=lambda version: version.commit_ts)
            if at and versions[at - 1].op != DELETE:
                yield key, versions[at - 1]

    def collect(self, safe_point: int) -> int:
        """Drop the versions that no read at or above `safe_point` needs. Returns their number. As in TiKV, later scans
        from a ts below it miss versions, without an error."""
        dropped = 0
        for key in list(self._versions):
            versions = self._versions[key]
            at = bisect_right(versions, safe_point, key=lambda version: version.commit_ts)
            first = at if at and versions[at - 1].op == DELETE else max(0, at - 1)
            if first:
                dropped += first
                del versions[:first]
                if not versions:
                    del self._versions[key]
        return dropped
