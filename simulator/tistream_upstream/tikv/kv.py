"""Percolator on regions: locks, commits, rollbacks, and the versions that a scan can still read. Mutable; no I/O.

Agents see what TiKV's do (upstream-formats 6.1): PREWRITE, COMMIT, ROLLBACK, COMMITTED; nothing of locks without data,
unless they are rolled back.
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

_BUCKET_BITS = LOGICAL_BITS + 10  # versions are kept by the second, nearly
_SHORT_VALUE = 255  # a longer one is not in the lock, and not told again when the lock is written again


class Conflict(Exception):
    """A key is locked by another transaction, or was committed after this one began."""


@dataclass(slots=True, eq=False)
class Mutation:
    """One key of a transaction. `table` and rows are None for keys that are no rows of user tables.

    `op` is OP_NONE for a key that is only locked (SELECT FOR UPDATE). `last_row`: of a DELETE that a bulk transaction
    flushed over its own PUT, that row.
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
    """A transaction. `commit_ts` is 0 until it is decided; `min_commit_ts` rises while it prewrites."""

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
        """What a resolver may not pass while its locks are there: TiKV lets it pass the start of a bulk transaction,
        but not its min_commit_ts (components/resolved_ts/src/resolver.rs)."""
        return max(self.start_ts, self.min_commit_ts - 1) if self.bulk else self.start_ts


class Version(NamedTuple):
    """A committed version, as a scan tells it."""

    key: bytes
    start_ts: int
    commit_ts: int
    op: int
    value: bytes | None
    old_value: bytes | None
    txn_source: int | None


class Listener(Protocol):
    """What wants to know of every decision."""

    def decided(self, txn: Txn) -> None:
        """A transaction has its commit_ts, for good."""


class Kv:
    """All keys of the cluster, behind its regions."""

    def __init__(self, world: World, regions: RegionMap, stores: Iterable[int], listener: Listener) -> None:
        self._world = world
        self._regions = regions
        self._listener = listener
        self.max_ts = dict.fromkeys(stores, 0)  # by store: no async commit or 1PC at or below it any more
        self.locks: dict[bytes, tuple[Txn, Mutation]] = {}
        self.reserved: set[bytes] = set()  # pessimistic locks: seen by transactions, not by agents
        self._other: dict[bytes, bytes] = {}
        self._last_commit: dict[bytes, int] = {}
        self._versions: dict[int, list[Version]] = defaultdict(list)

    # -- transactions ---------------------------------------------------------------------------------------------

    def prewrite(self, txn: Txn, mutations: Sequence[Mutation]) -> None:
        """Lock keys with their data. Raises Conflict, and locks nothing then."""
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
        """Of a bulk transaction: newer data, of a higher generation, for keys that it has locked."""
        for one in mutations:
            self._read_old(one)
            self.locks[one.key] = (txn, one)
        for region, found in self._by_region(mutations):
            self._log_prewrites(txn, region, found)

    def decide(self, txn: Txn) -> None:
        """All is prewritten: it has a commit_ts and will be committed, whatever happens."""
        txn.commit_ts = txn.min_commit_ts if txn.async_commit else self._world.ts()
        self._decided(txn)

    def commit(self, txn: Txn, mutations: Sequence[Mutation]) -> None:
        """Turn locks into versions."""
        start_ts, commit_ts = txn.start_ts, txn.commit_ts
        for region, found in self._by_region(mutations):
            index = region.append()
            region.hold(txn, -_with_data(found))
            if region.open is not None:
                region.open.entries.extend(
                    [
                        Entry(COMMIT, m.op, index, m.key, None, None, start_ts, commit_ts, None, None)
                        for m in found
                        if m.op
                    ]
                )  # fmt: skip
        for one in mutations:
            del self.locks[one.key]
            self._apply(txn, one)

    def one_phase(self, txn: Txn) -> None:
        """Prewrite and commit in one command of one region. Raises Conflict."""
        for one in txn.mutations:
            self._check(txn, one)
        ((region, found),) = self._by_region(txn.mutations)
        for one in found:
            self._read_old(one)
        self._raise_min_commit(txn, region)
        txn.commit_ts = txn.min_commit_ts
        self._decided(txn)
        index = region.append()
        if region.open is not None:
            ts = (txn.start_ts, txn.commit_ts, txn.source)
            region.open.entries.extend(
                [Entry(COMMITTED, m.op, index, m.key, m.value, m.old_value, *ts, None) for m in found if m.op]
            )
        for one in found:
            self._apply(txn, one)

    def rollback(self, txn: Txn, keys: Sequence[bytes]) -> None:
        """Roll back keys, locked or never prewritten."""
        for region, found in self._by_region([Mutation(key, OP_NONE, None) for key in keys]):
            index = region.append()
            for one in found:
                lock = self.locks.get(one.key)
                if lock is not None and lock[0] is txn:
                    del self.locks[one.key]
                    region.hold(txn, -_with_data([lock[1]]))
                if region.open is not None:
                    entry = Entry(ROLLBACK, OP_NONE, index, one.key, None, None, txn.start_ts, None, None, None)
                    region.open.entries.append(entry)

    def touch(self, keys: Iterable[bytes]) -> None:
        """Locks without data: the log grows, and no agent tells anything."""
        for key in keys:
            self._regions.find(key).append()

    def rewrite_lock(self, txn: Txn) -> bool:
        """Its primary's lock is written again: a heartbeat, or a reader that pushed its min_commit_ts. Agents tell the
        same PREWRITE at a higher index, unless the value is too long to be in the lock (upstream-formats 6.1). False:
        there is no lock."""
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
        """Give up its pessimistic locks."""
        if txn.pessimistic:
            self.reserved.difference_update([one.key for one in txn.mutations])

    def heartbeat(self, txn: Txn) -> None:
        """A bulk transaction will not be committed at or below now."""
        txn.min_commit_ts = self._world.ts() + 1

    def one_region(self, txn: Txn) -> bool:
        """Whether all of its keys are in one region."""
        region = self._regions.find(txn.mutations[0].key)
        return all(one.key in region.span for one in txn.mutations)

    def read(self, keys: Iterable[bytes], ts: int) -> None:
        """A snapshot read at `ts`: what commits there later, commits above it."""
        for key in keys:
            store_id = self._regions.find(key).store_id
            self.max_ts[store_id] = max(self.max_ts[store_id], ts)

    def raise_max_ts(self, store_id: int) -> None:
        """A store becomes a leader: what an earlier leader promised holds for it too."""
        self.max_ts[store_id] = max(self.max_ts[store_id], self._world.ts())

    # -- what is there --------------------------------------------------------------------------------------------

    def final_ts(self) -> int:
        """A ts at or below which no commit can still be decided: an async commit that is not decided yet has a
        prewrite before it, and that one lifts it above what every store has now read."""
        ts = self._world.ts()
        for store_id in self.max_ts:
            self.max_ts[store_id] = max(self.max_ts[store_id], ts)
        return ts

    def value(self, key: bytes) -> bytes | None:
        """The value of a key that is no row."""
        return self._other.get(key)

    def preload(self, key: bytes, value: bytes) -> None:
        """A key that was there before everything that scans can still read."""
        self._other[key] = value

    def scan(self, region: Region, base_ts: int) -> list[Entry]:
        """All versions of a region above `base_ts`, and its locks, as of the end of its log."""
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
        """Transactions with locks of data in a span, and how many."""
        found: dict[Holder, int] = {}
        for key, (txn, m) in self.locks.items():
            if m.op and key in span:
                found[txn] = found.get(txn, 0) + 1
        return found

    @property
    def kept(self) -> int:
        """How many versions are kept for scans."""
        return sum(map(len, self._versions.values()))

    def forget(self, before_ts: int) -> None:
        """Drop versions that no scan may ask for any more: those below `before_ts`."""
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
        if region.open is not None:
            start_ts, source = txn.start_ts, txn.source
            region.open.entries.extend(
                [
                    Entry(PREWRITE, m.op, index, m.key, m.value, m.old_value, start_ts, None, source, m.generation)
                    for m in found
                    if m.op
                ]
            )

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
    """How many are no mere locks: only those hold a region's resolved_ts back."""
    return sum(1 for one in mutations if one.op)
