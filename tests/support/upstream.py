"""A random TiKV cluster that pushes change files by the contract (design.md 2), and remembers what is true.

Regions with logs split, merge and move between stores; transactions are short, long, pipelined, one-phase, rolled
back; agents die with what they had not pushed, and what they led is scanned. One seed replays everything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from support import change_files
from support.golden import Delivery
from support.oracle import COLUMNS, COMMIT, COMMITTED, PREWRITE, ROLLBACK, WATERMARK
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.storage import layout
from tistream.wire.file_batch import WATERMARKS
from tistream_sorter.slice_history import History
from tistream_sorter.slices import SliceMap

TENANT = TenantKey("7", "random")
PREFIX = b"t" + (7 | 1 << 63).to_bytes(8, "big") + b"_r"
KEYS = [PREFIX + bytes([number]) for number in range(48)]
Row = dict[str, Any]


@dataclass
class Range:
    """A stretch of one region's log under one leader, one span and one version, not pushed yet."""

    region: int
    version: int
    span: KeySpan
    first: int
    last: int
    resolved_ts: int = 0
    base_ts: int | None = None
    after: tuple[tuple[int, int], ...] = ()
    entries: list[Row] = field(default_factory=list)

    def watermark(self) -> Row:
        return {
            "type": WATERMARK,
            "op_type": 0,
            "region_id": self.region,
            "region_version": self.version,
            "first_index": self.first,
            "log_index": self.last,
            "key": self.span.start,
            "end_key": self.span.end,
            "base_ts": self.base_ts,
            "resolved_ts": self.resolved_ts,
            "after": [{"region_id": r, "log_index": i} for r, i in self.after] or None,
        }


@dataclass
class Region:
    number: int
    version: int
    span: KeySpan
    index: int
    store: int
    resolver_ts: int = 0  # what its leader's resolver has reached
    open: Range | None = None


@dataclass
class Store:
    number: int
    buffer: list[Range] = field(default_factory=list)
    at_ts: int = 0


@dataclass
class Lock:
    start_ts: int
    op: int
    value: bytes | None
    old: bytes | None
    generation: int | None


@dataclass
class Txn:
    start_ts: int
    keys: list[bytes]
    kind: str  # "plain", "pipelined"
    locked: list[bytes] = field(default_factory=list)
    commit_ts: int = 0  # 0 until its primary is committed
    rolling: bool = False


class Upstream:
    """`step()` does something at random; `finish()` ends all transactions; `files` is what was pushed, in order."""

    def __init__(self, seed: int, stores: int = 3) -> None:
        self.tenant = TENANT
        self.rng = random.Random(seed)
        self.ts = 1000
        self.stores = {number: Store(number) for number in range(1, stores + 1)}
        self.regions: list[Region] = []
        self.values: dict[bytes, bytes] = {}
        self.locks: dict[bytes, Lock] = {}
        self.txns: list[Txn] = []
        self.rows: list[tuple[Any, ...]] = []
        self.files: list[Delivery] = []
        self.chain_starts: set[int] = set()
        self.sure = SliceMap(WHOLE, 0)
        self._next_region = 2
        self._begin()

    def _begin(self) -> None:
        first = Region(1, 1, WHOLE, 5, 1)
        self.regions.append(first)
        for _ in range(self.rng.randint(0, 40)):
            self._transact()
        self.snapshot_ts = self.tick()
        self.sure = SliceMap(WHOLE, self.snapshot_ts)
        for store in self.stores.values():
            store.buffer = []
        self._scan(first)

    # -- what is true ---------------------------------------------------------------------------------------------

    def truth(self) -> pl.DataFrame:
        """Every row above the snapshot, as the oracle has them."""
        rows = [row for row in self.rows if row[2] > self.snapshot_ts]
        return pl.DataFrame(rows, COLUMNS, orient="row").sort("commit_ts", "start_ts", "key")

    def tick(self) -> int:
        self.ts += self.rng.randint(1, 4)
        return self.ts

    # -- transactions ---------------------------------------------------------------------------------------------

    def _transact(self) -> None:
        if not self.txns or (len(self.txns) < 5 and self.rng.random() < 0.3):
            keys = self.rng.sample(KEYS, self.rng.randint(1, 5))
            if self.rng.random() < 0.2:
                self._one_phase(keys[0])
                return
            kind = "pipelined" if self.rng.random() < 0.25 else "plain"
            self.txns.append(Txn(self.tick(), keys, kind))
        self._go_on(self.rng.choice(self.txns))

    def _one_phase(self, key: bytes) -> None:
        if key in self.locks:
            return
        start_ts = self.tick()
        op, value = self._written(start_ts)
        commit_ts = self.tick()
        old = self.values.get(key)
        self._log(key, COMMITTED, start_ts, commit_ts, op_type=op, value=value, old_value=old)
        self._committed(key, start_ts, commit_ts, Lock(start_ts, op, value, old, None))

    def _written(self, start_ts: int) -> tuple[int, bytes | None]:
        return (2, None) if self.rng.random() < 0.2 else (1, b"%d.%d" % (start_ts, self.rng.randint(0, 9)))

    def _go_on(self, txn: Txn) -> None:
        if txn.commit_ts or txn.rolling:
            self._settle(txn)
        elif len(txn.locked) < len(txn.keys):
            if self.rng.random() < 0.06:
                txn.rolling = True
            else:
                self._prewrite(txn, txn.keys[len(txn.locked)])
        elif txn.kind == "pipelined" and self.rng.random() < 0.4:
            self._lock(txn, self.rng.choice(txn.locked))
        elif self.rng.random() < 0.15:
            txn.rolling = True
        elif self.rng.random() < 0.5:
            txn.commit_ts = self.tick()

    def _prewrite(self, txn: Txn, key: bytes) -> None:
        if key in self.locks:
            txn.rolling = self.rng.random() < 0.5
            return
        self._lock(txn, key)
        txn.locked.append(key)

    def _lock(self, txn: Txn, key: bytes) -> None:
        op, value = self._written(txn.start_ts)
        known = self.locks.get(key)
        generation = None if txn.kind == "plain" else (known.generation or 0) + 1 if known else 1
        lock = Lock(txn.start_ts, op, value, self.values.get(key), generation)
        self.locks[key] = lock
        self._log(key, PREWRITE, txn.start_ts, None, **_body(lock))

    def _settle(self, txn: Txn) -> None:
        if not txn.locked:
            if txn.rolling and self.rng.random() < 0.5:  # a rollback of what was never prewritten
                free = [key for key in txn.keys if key not in self.locks]
                for key in free[:1]:
                    self._log(key, ROLLBACK, txn.start_ts, None)
            self.txns.remove(txn)
            return
        key = txn.locked.pop(0)
        lock = self.locks.pop(key)
        if txn.rolling:
            self._log(key, ROLLBACK, txn.start_ts, None)
        else:
            self._log(key, COMMIT, txn.start_ts, txn.commit_ts)
            self._committed(key, txn.start_ts, txn.commit_ts, lock)

    def _committed(self, key: bytes, start_ts: int, commit_ts: int, lock: Lock) -> None:
        self.rows.append((key, start_ts, commit_ts, lock.op, lock.value, lock.old, None))
        if lock.value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = lock.value

    # -- logs -----------------------------------------------------------------------------------------------------

    def _log(self, key: bytes, kind: int, start_ts: int, commit_ts: int | None, **more: Any) -> None:
        region = next(region for region in self.regions if key in region.span)
        current = self._advance(region)
        current.entries.append(_entry(region, region.index, key, kind, start_ts, commit_ts, **more))

    def _advance(self, region: Region) -> Range:
        """One more entry in the region's log."""
        current = self._range(region)
        region.index += 1
        current.last = region.index
        return current

    def _range(self, region: Region, after: tuple[tuple[int, int], ...] = ()) -> Range:
        if region.open is None:
            first = region.index + 1
            region.open = Range(region.number, region.version, region.span, first, region.index, after=after)
            self.stores[region.store].buffer.append(region.open)
        return region.open

    def _close(self, region: Region) -> None:
        self._range(region).resolved_ts = self._resolved(region)
        region.open = None

    def _resolved(self, region: Region) -> int:
        """As TiKV's resolver: the oldest lock or now, but never lower than before."""
        starts = [lock.start_ts for key, lock in self.locks.items() if key in region.span]
        region.resolver_ts = max(region.resolver_ts, min([*starts, self.tick()]))
        return region.resolver_ts

    # -- regions --------------------------------------------------------------------------------------------------

    def _split(self) -> None:
        region = self.rng.choice(self.regions)
        inside = [key for key in KEYS if key in region.span and key > region.span.start]
        if not inside:
            return
        self._advance(region)
        self._close(region)
        at, parent = self.rng.choice(inside), (region.number, region.index)
        left, right = KeySpan(region.span.start, at), KeySpan(at, region.span.end)
        region.version += 1
        region.resolver_ts = 0
        region.span, other = (left, right) if self.rng.random() < 0.5 else (right, left)
        store = region.store if self.rng.random() < 0.7 else self.rng.choice(list(self.stores))
        child = Region(self._next_region, region.version, other, 5, store)
        self._next_region += 1
        self._range(child, after=(parent,))
        self._range(region, after=(parent,) if self.rng.random() < 0.5 else ())
        self.regions = sorted([*self.regions, child], key=lambda region: region.span.start)

    def _merge(self) -> None:
        if len(self.regions) < 2:
            return
        at = self.rng.randrange(len(self.regions) - 1)
        left, right = self.regions[at : at + 2]
        target, source = (left, right) if self.rng.random() < 0.5 else (right, left)
        for region in (source, target):
            self._advance(region)
            self._close(region)
        target.version = max(target.version, source.version + 1) + 1
        target.span = KeySpan(left.span.start, right.span.end)
        target.resolver_ts = 0
        self._range(target, after=((source.number, source.index),))
        self.regions.remove(source)

    def _move_leader(self) -> None:
        region = self.rng.choice(self.regions)
        self._close(region)
        region.store, region.resolver_ts = self.rng.choice(list(self.stores)), 0
        self._range(region)
        if self.rng.random() < 0.8:
            self._advance(region)  # the new term's empty entry

    # -- agents ---------------------------------------------------------------------------------------------------

    def _push(self, store: Store, *, chain_start: bool = False) -> None:
        for region in self.regions:
            if region.store == store.number and (region.open or self.rng.random() < 0.7):
                self._close(region)
        ranges, store.buffer = store.buffer, []
        if not ranges:
            return
        prev_ts = 0 if chain_start else store.at_ts
        for _ in range(2 if self.rng.random() < 0.15 else 1):  # an agent that tried twice says all again
            store.at_ts = self.tick()
            if not prev_ts:
                self.chain_starts.add(store.at_ts)
            self._write(store, prev_ts, ranges)
            prev_ts = store.at_ts

    def _write(self, store: Store, prev_ts: int, ranges: list[Range]) -> None:
        rows = [one.watermark() for one in ranges]
        data = change_files.change_file(
            TENANT.cluster_id,
            TENANT.tenant_id,
            store.number,
            prev_ts,
            changes=[entry for one in ranges for entry in one.entries],
            watermarks=rows,
            rows_per_group=self.rng.choice([3, 65_536]),
        )
        self.files.append(Delivery(float(self.ts), layout.change_file(TENANT, store.number, store.at_ts), data))
        clipped = [{**row, "file": 0, "task_id": 1, "start_key": row["key"]} for row in rows]
        self.sure.apply(pa.Table.from_pylist(clipped, schema=WATERMARKS), store.number, store.at_ts, 0, History())

    def _lose(self) -> None:
        """An agent dies with what it had not pushed; what it led since is scanned by whoever leads it now."""
        store = self.rng.choice(list(self.stores.values()))
        lost, store.buffer = store.buffer, []
        for region in self.regions:
            if region.store == store.number:
                lost.append(Range(region.number, region.version, region.span, 0, 0))
                region.open, region.resolver_ts = None, 0
                if self.rng.random() < 0.5:
                    region.store = self.rng.choice(list(self.stores))
        for region in self.regions:
            if any(one.span.overlaps(region.span) for one in lost):
                self._scan(region)
        fresh = bool(store.buffer) and all(one.base_ts is not None for one in store.buffer)
        if fresh and self.rng.random() < 0.6:
            self._push(store, chain_start=True)

    def _scan(self, region: Region) -> None:
        if region.open is not None:
            self._close(region)
        sure = min(state.resolved_ts for state in self.sure.states(region.span))
        base_ts = sure if self.rng.random() < 0.7 else self.rng.randint(0, sure)
        scanned = self._range(region)
        scanned.base_ts = base_ts
        for key, start_ts, commit_ts, op, value, old, _ in self.rows:
            if key in region.span and commit_ts > base_ts:
                body = {"op_type": op, "value": value, "old_value": old}
                scanned.entries.append(_entry(region, region.index, key, COMMITTED, start_ts, commit_ts, **body))
        for key, lock in self.locks.items():
            if key in region.span:
                scanned.entries.append(_entry(region, region.index, key, PREWRITE, lock.start_ts, None, **_body(lock)))

    # -- time -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens."""
        what = self.rng.choices(("transact", "push", "split", "merge", "move", "lose"), (30, 6, 1, 0.8, 1.5, 0.7))[0]
        match what:
            case "transact":
                self._transact()
            case "push":
                self._push(self.rng.choice(list(self.stores.values())))
            case "move":
                self._move_leader()
            case other:
                getattr(self, f"_{other}")()

    def finish(self) -> int:
        """Every transaction ends, everything is pushed: the ts through which all must be known then."""
        while self.txns:
            self._go_on(self.txns[0])
        end_ts = self.tick()
        for _ in range(2):
            for region in self.regions:
                self._advance(region)
                self._close(region)
            for store in self.stores.values():
                self._push(store)
        return end_ts


def _body(lock: Lock) -> Row:
    return {"op_type": lock.op, "value": lock.value, "old_value": lock.old, "generation": lock.generation}


def _entry(region: Region, index: int, key: bytes, kind: int, start_ts: int, commit_ts: int | None, **more: Any) -> Row:
    base = {"type": kind, "op_type": 0, "region_id": region.number, "region_version": region.version}
    return {**base, "log_index": index, "key": key, "start_ts": start_ts, "commit_ts": commit_ts, **more}
