"""Percolator transactions on regions: locks, commits, rollbacks, and versions for scans. Mutable; no I/O.

The simulated agents receive the kinds of entries that TiKV sends (upstream-formats 6.1): PREWRITE, COMMIT, ROLLBACK and
COMMITTED. A lock without data gives no entry; its rollback does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tistream.format.change_file import COMMIT, COMMITTED, OP_DELETE, OP_NONE, OP_PUT, PREWRITE, ROLLBACK
from tistream.model.span import KeySpan
from tistream.model.ts import LOGICAL_BITS
from tistream_upstream.schema.catalog import Table
from tistream_upstream.schema.layout import Row
from tistream_upstream.schema.schema_change import SchemaChange
from tistream_upstream.tikv.regions import Entry, Holder, Region, RegionMap
from tistream_upstream.world import World

_BUCKET_BITS = LOGICAL_BITS + 10  # versions are grouped by about a second
_SHORT_VALUE = 255  # a longer value is not in the lock, so a repeated lock does not repeat its PREWRITE


class Conflict(Exception):
    """Raised if another transaction has locked a key, or committed it after this transaction began."""


@dataclass(slots=True, eq=False)
class Mutation:
    """One key of a transaction. `table` and the rows are None for keys other than rows of user tables.

    `op` is OP_NONE for a key that is only locked (SELECT FOR UPDATE). `last_row`: if a bulk transaction deletes a row
    that an earlier flush of it has put, that row.
    """

    key: bytes
    op: int
    value: bytes | None
    table: Table | None = None
    old_row: Row | None = None
    new_row: Row | None = None
    old_value: bytes | None = None
    generation: int | None = None
    last_row: Row | None = None


@dataclass(slots=True, eq=False)
class Txn:
    """A transaction. `commit_ts` is 0 until the commit is decided; `min_commit_ts` rises during prewrites."""

    start_ts: int
    mutations: list[Mutation]
    async_commit: bool = False
    bulk: bool = False
    pessimistic: bool = True
    source: int | None = None
    for_update_ts: int = 0
    min_commit_ts: int = 0
    commit_ts: int = 0
    on_decided: Callable[[Txn], None] | None = None
    schema: SchemaChange | None = None
    tables: list[Table] = field(default_factory=list)

    @property
    def hold_ts(self) -> int:
        """The ts that the resolver (which computes a region's resolved_ts) may not pass while the locks exist. For a
        bulk transaction TiKV uses its min_commit_ts in place of its start_ts
        (components/resolved_ts/src/resolver.rs)."""
        return max(self.start_ts, self.min_commit_ts - 1) if self.bulk else self.start_ts


class Version(NamedTuple):
    """A committed version, as a scan finds it."""

    key: bytes
    start_ts: int
    commit_ts: int
    op: int
    value: bytes | None
    old_value: bytes | None
    txn_source: int | None


class Listener(Protocol):
    """A receiver of commit decisions."""

    def decided(self, txn: Txn) -> None:
        """Called when the commit_ts of a transaction is decided."""


class Kv:
    """All keys of the cluster, with their locks and versions."""

    def __init__(self, world: World, regions: RegionMap, stores: Iterable[int], listener: Listener) -> None:
        self._world = world
        self._regions = regions
        self._listener = listener
        self.observe: Callable[[Region, Sequence[Entry]], None] | None = None  # of each command with data
        self.max_ts = dict.fromkeys(stores, 0)  # by store: async commit and 1PC commit above it
        self.locks: dict[bytes, tuple[Txn, Mutation]] = {}
        self.reserved: set[bytes] = set()  # pessimistic locks: visible to transactions, not to agents
        self._other: dict[bytes, bytes] = {}
        self._last_commit: dict[bytes, int] = {}
        self._versions: dict[int, list[Version]] = defaultdict(list)

    # -- transactions ---------------------------------------------------------------------------------------------

    def prewrite(self, txn: Txn, mutations: Sequence[Mutation]) -> None:
        """Lock keys with their data. Raises Conflict, and then locks no key."""
        for one in mutations:
            self._check(txn, one)
        for one in mutations:
            self._read_old(one)
            self.locks[one.key] = (txn, one)
        for region, found in self._by_region(mutations):
            if txn.async_commit:
                self._raise_min_commit(txn, region)
            region.hold(txn, _with_data(found))
            self._log_prewrites(txn, region, found)

    def flush_again(self, txn: Txn, mutations: Sequence[Mutation]) -> None:
        """Write newer values, of a higher generation, for keys that a bulk transaction has locked."""
        for one in mutations:
            self._read_old(one)
            self.locks[one.key] = (txn, one)
        for region, found in self._by_region(mutations):
            self._log_prewrites(txn, region, found)

    def decide(self, txn: Txn) -> None:
        """Decide to commit a transaction whose keys are all prewritten: it gets its commit_ts."""
        txn.commit_ts = txn.min_commit_ts if txn.async_commit else self._world.ts()
        self._decided(txn)

    def commit(self, txn: Txn, mutations: Sequence[Mutation]) -> None:
        """Replace the locks of a transaction, whose commit is decided, by versions."""
        start_ts, commit_ts = txn.start_ts, txn.commit_ts
        for region, found in self._by_region(mutations):
            index = region.append()
            region.hold(txn, -_with_data(found))
            if self._seen(region):
                self._log(
                    region,
                    [
                        Entry(COMMIT, m.op, index, m.key, None, None, start_ts, commit_ts, None, None)
                        for m in found
                        if m.op
                    ],
                )
        for one in mutations:
            del self.locks[one.key]
            self._apply(txn, one)

    def one_phase(self, txn: Txn) -> None:
        """Prewrite and commit a transaction in one command (1PC). All of its keys must be in one region. Raises
        Conflict."""
        for one in txn.mutations:
            self._check(txn, one)
        ((region, found),) = self._by_region(txn.mutations)
        for one in found:
            self._read_old(one)
        self._raise_min_commit(txn, region)
        txn.commit_ts = txn.min_commit_ts
        self._decided(txn)
        index = region.append()
        if self._seen(region):
            ts = (txn.start_ts, txn.commit_ts, txn.source)
            self._log(
                region,
                [Entry(COMMITTED, m.op, index, m.key, m.value, m.old_value, *ts, None) for m in found if m.op],
            )
        for one in found:
            self._apply(txn, one)

    def rollback(self, txn: Txn, keys: Sequence[bytes]) -> None:
        """Roll back keys of a transaction, whether they were prewritten or not."""
        for region, found in self._by_region([Mutation(key, OP_NONE, None) for key in keys]):
            index = region.append()
            for one in found:
                lock = self.locks.get(one.key)
                if lock is not None and lock[0] is txn:
                    del self.locks[one.key]
                    region.hold(txn, -_with_data([lock[1]]))
                if self._seen(region):
                    entry = Entry(ROLLBACK, OP_NONE, index, one.key, None, None, txn.start_ts, None, None, None)
                    self._log(region, [entry])

    def touch(self, keys: Iterable[bytes]) -> None:
        """Append a log entry for each key that is locked without data. Agents do not see these entries."""
        for key in keys:
            self._regions.find(key).append()

    def rewrite_lock(self, txn: Txn) -> bool:
        """Write the primary's lock again, as heartbeats and readers that push min_commit_ts do.

        Agents push the same PREWRITE at a higher index, unless the value is too long for the lock
        (upstream-formats 6.1). Returns False if the lock no longer exists.
        """
        lock = self.locks.get(txn.mutations[0].key)
        if lock is None or lock[0] is not txn:
            return False
        one = lock[1]
        region = self._regions.find(one.key)
        if txn.bulk:
            self.heartbeat(txn)
        if len(one.value or b"") > _SHORT_VALUE:
            region.append()
        else:
            self._log_prewrites(txn, region, [one])
        return True

    def release(self, txn: Txn) -> None:
        """Release the pessimistic locks of a transaction."""
        if txn.pessimistic:
            self.reserved.difference_update([one.key for one in txn.mutations])

    def heartbeat(self, txn: Txn) -> None:
        """Raise the min_commit_ts of a bulk transaction above the present ts, as its heartbeats do."""
        txn.min_commit_ts = self._world.ts() + 1

    def one_region(self, txn: Txn) -> bool:
        """Whether all keys of a transaction are in one region."""
        region = self._regions.find(txn.mutations[0].key)
        return all(one.key in region.span for one in txn.mutations)

    def read(self, keys: Iterable[bytes], ts: int) -> None:
        """Read keys at `ts`. As in TiKV, later async commits of the stores that were read get a commit_ts above it."""
        for key in keys:
            store_id = self._regions.find(key).store_id
            self.max_ts[store_id] = max(self.max_ts[store_id], ts)

    def raise_max_ts(self, store_id: int) -> None:
        """Raise the max_ts of a store that becomes a leader, so that no async commit there gets a commit_ts at or below
        a read at the previous leader."""
        self.max_ts[store_id] = max(self.max_ts[store_id], self._world.ts())

    # -- reads ---------------------------------------------------------------------------------------------------

    def final_ts(self) -> int:
        """Choose a ts at or below which no commit can be decided any more. Raises the max_ts of every store to it, so
        async commits that are still prewriting get a higher commit_ts."""
        ts = self._world.ts()
        for store_id in self.max_ts:
            self.max_ts[store_id] = max(self.max_ts[store_id], ts)
        return ts

    def value(self, key: bytes) -> bytes | None:
        """The present value of a key that is not of a row of a user table."""
        return self._other.get(key)

    def preload(self, key: bytes, value: bytes) -> None:
        """Set a key as if it had been written before all versions that scans can read."""
        self._other[key] = value

    def scan(self, region: Region, base_ts: int) -> list[Entry]:
        """The versions of a region above `base_ts`, and its locks with data, as entries with the region's last log
        index."""
        out = []
        for bucket in sorted(self._versions):
            if bucket >= base_ts >> _BUCKET_BITS:
                for v in self._versions[bucket]:
                    if v.commit_ts > base_ts and v.key in region.span:
                        at = (COMMITTED, v.op, region.index, v.key, v.value, v.old_value)
                        out.append(Entry(*at, v.start_ts, v.commit_ts, v.txn_source, None))
        for key, (txn, m) in self.locks.items():
            if m.op and key in region.span:
                at = (PREWRITE, m.op, region.index, key, m.value, m.old_value)
                out.append(Entry(*at, txn.start_ts, None, txn.source, m.generation))
        return out

    def holders_in(self, span: KeySpan) -> dict[Holder, int]:
        """The transactions that have locks with data in a span, and the number of these locks."""
        found: dict[Holder, int] = {}
        for key, (txn, m) in self.locks.items():
            if m.op and key in span:
                found[txn] = found.get(txn, 0) + 1
        return found

    @property
    def kept(self) -> int:
        """The number of versions that are kept for scans."""
        return sum(map(len, self._versions.values()))

    def forget(self, before_ts: int) -> None:
        """Drop versions below `before_ts`, which no scan will read, in groups of about a second. Also forget the times
        of commits below it, by which conflicts are found."""
        for bucket in [bucket for bucket in self._versions if bucket < before_ts >> _BUCKET_BITS]:
            del self._versions[bucket]
        self._last_commit = {key: ts for key, ts in self._last_commit.items() if ts >= before_ts}

    # -- inside ---------------------------------------------------------------------------------------------------

    def _by_region(self, mutations: Sequence[Mutation]) -> Iterator[tuple[Region, list[Mutation]]]:
        groups: dict[int, tuple[Region, list[Mutation]]] = {}
        find = self._regions.find
        for one in mutations:
            region = find(one.key)
            group = groups.get(region.id)
            if group is None:
                groups[region.id] = (region, [one])
            else:
                group[1].append(one)
        return iter(groups.values())

    def _check(self, txn: Txn, one: Mutation) -> None:
        if one.key in self.locks:
            raise Conflict
        newer = self._last_commit.get(one.key, 0) > txn.start_ts
        if not txn.pessimistic and (newer or one.key in self.reserved):
            raise Conflict

    def _read_old(self, one: Mutation) -> None:
        if one.table is None:
            one.old_value = self._other.get(one.key)
        else:
            one.old_row = one.table.rows.by_key.get(one.key)
            one.old_value = None if one.old_row is None else one.old_row.value

    def _raise_min_commit(self, txn: Txn, region: Region) -> None:
        low = max(self.max_ts[region.store_id], txn.start_ts, txn.for_update_ts)
        txn.min_commit_ts = max(txn.min_commit_ts, low + 1)

    def _log_prewrites(self, txn: Txn, region: Region, found: Sequence[Mutation]) -> None:
        index = region.append()
        if self._seen(region):
            start_ts, source = txn.start_ts, txn.source
            self._log(
                region,
                [
                    Entry(PREWRITE, m.op, index, m.key, m.value, m.old_value, start_ts, None, source, m.generation)
                    for m in found
                    if m.op
                ],
            )

    def _seen(self, region: Region) -> bool:
        return region.open is not None or self.observe is not None

    def _log(self, region: Region, entries: Sequence[Entry]) -> None:
        if region.open is not None:
            region.open.entries.extend(entries)
        if self.observe is not None and entries:
            self.observe(region, entries)

    def _decided(self, txn: Txn) -> None:
        self._listener.decided(txn)
        if txn.on_decided is not None:
            txn.on_decided(txn)

    def _apply(self, txn: Txn, one: Mutation) -> None:
        commit_ts = txn.commit_ts
        if not one.op:
            self.reserved.discard(one.key)
            self._last_commit[one.key] = commit_ts
            return
        self._versions[commit_ts >> _BUCKET_BITS].append(
            Version(one.key, txn.start_ts, commit_ts, one.op, one.value, one.old_value, txn.source)
        )
        self.reserved.discard(one.key)
        if one.table is None:
            if one.op == OP_PUT and one.value is not None:
                self._other[one.key] = one.value
            else:
                self._other.pop(one.key, None)
            return
        self._last_commit[one.key] = commit_ts
        if one.op == OP_DELETE:
            one.table.rows.drop(one.key)
        elif one.new_row is not None:
            one.table.rows.put(one.key, one.new_row)


def _with_data(mutations: Iterable[Mutation]) -> int:
    """The number of mutations with data. Only their locks hold back the resolved_ts of a region."""
    return sum(1 for one in mutations if one.op)
