"""Makes the load: begins transactions, and chooses the rows that they write. Mutable; no I/O."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tistream.format.change_file import OP_DELETE, OP_NONE, OP_PUT
from tistream_upstream.config import ClusterConfig
from tistream_upstream.schema.catalog import Catalog, Table, changed, draw
from tistream_upstream.schema.layout import Row
from tistream_upstream.tikv.kv import Kv, Mutation, Txn
from tistream_upstream.work.session import Session
from tistream_upstream.world import World

_TICK_MS = 10
_CREDIT_S = 1.0  # the load makes up for at most this many seconds
_HOT_ROWS = 8
_TRIES = 4
_UNPUT = 0.25  # share of the rows of a later flush that a bulk transaction deletes
_INDEX_VALUE = b"0"


class Load:
    """Begins transactions at the configured rates, until it is stopped."""

    def __init__(self, config: ClusterConfig, world: World, kv: Kv, catalog: Catalog, session: Session) -> None:
        self._config = config
        self._world = world
        self._kv = kv
        self._catalog = catalog
        self._session = session
        self._rng: random.Random = world.rng("load")
        self._stamp = 0
        self._txns = self._rows = 0.0
        self._huge_at_ms = world.now_ms + config.mix.huge_every_ms
        self.stopped = False
        self.held = False

    def start(self) -> None:
        """Begin the load."""
        self._world.after(_TICK_MS, self._tick)

    def _tick(self) -> None:
        if self.stopped:
            return
        self._world.after(_TICK_MS, self._tick)
        if self.held:
            return
        config = self._config
        boost = 1.0
        if config.bursts:  # one of eight periods has up to eight times the rate, the others less
            phase = self._world.now_ms // config.burst_ms % 8
            boost = 1 + config.bursts * (7 if phase == 0 else -1)
        self._txns = min(self._txns + config.txns_per_s * _TICK_MS / 1000 * boost, config.txns_per_s * _CREDIT_S)
        self._rows = min(self._rows + config.rows_per_s * _TICK_MS / 1000 * boost, config.rows_per_s * _CREDIT_S)
        while self._txns >= 1:
            self._txns -= 1
            self._begin()

    def _begin(self) -> None:
        mix, rng = self._config.mix, self._rng
        mean = max(1.0, self._rows / (self._txns + 1))
        count = 1 + int(rng.random() * (2 * mean - 1))
        bulk = False
        if mix.huge_rows and self._world.now_ms >= self._huge_at_ms:
            self._huge_at_ms = self._world.now_ms + mix.huge_every_ms
            count = mix.huge_rows
        elif rng.random() < mix.bulk:
            count, bulk = 1 + rng.randrange(2 * mix.bulk_rows), True
        txn = Txn(self._world.ts(), [], bulk=bulk)
        txn.pessimistic = bulk or count > 64 or rng.random() >= mix.optimistic
        if rng.random() < mix.sourced:
            txn.source = rng.randint(1, 15)
        self._write(txn, count)
        self._rows -= max(1, sum(1 for one in txn.mutations if one.table is not None))
        if txn.mutations:
            self._session.begin(txn)

    # -- statements -----------------------------------------------------------------------------------------------

    def _write(self, txn: Txn, rows: int) -> None:
        tables = self._catalog.usable()
        if not tables:
            return
        rng = self._rng
        table = tables[int(rng.random() * len(tables))]
        taken: set[bytes] = set()
        for number in range(rows):
            if number and rng.random() < 0.1:
                table = tables[int(rng.random() * len(tables))]
            self._statement(txn, table, taken)
        if rng.random() < self._config.mix.row_locks and not txn.bulk:
            self._lock_rows(txn, table, taken)
        keys = [one.key for one in txn.mutations]
        if txn.pessimistic:
            txn.for_update_ts = self._world.ts()
            self._kv.reserved.update(keys)
        else:
            self._kv.read(keys, txn.start_ts)
        for one in txn.mutations:
            if one.table is not None and one.table not in txn.tables:
                txn.tables.append(one.table)

    def _statement(self, txn: Txn, table: Table, taken: set[bytes]) -> None:
        rng = self._rng
        full = len(table.rows) >= self._config.rows_max
        self._stamp += 1
        if len(table.rows) < 2 or rng.random() < table.insert_share:
            key, shown, cells = table.new_key()
            row = Row(table.layout, shown, draw(table.layout, rng, cells, self._stamp))
            self._add(txn, table, key, None, row)
            if not full:
                return
        found = self._pick(table, taken)
        if found is None:
            return
        taken.add(found)
        old = table.rows.by_key[found]
        if full or rng.random() < 0.15:
            self._add(txn, table, found, old, None)
            return
        cells = table.layout.adapt(old) if rng.random() < 0.02 else changed(table.layout, rng, old, self._stamp)
        self._add(txn, table, found, old, Row(table.layout, old.key, cells))

    def _lock_rows(self, txn: Txn, table: Table, taken: set[bytes]) -> None:
        """Lock rows without changing them (SELECT FOR UPDATE). The primary may be one of them."""
        for _ in range(self._rng.randint(1, 3)):
            found = self._pick(table, taken)
            if found is not None:
                taken.add(found)
                txn.mutations.insert(self._rng.randint(0, len(txn.mutations)), Mutation(found, OP_NONE, None))

    def _pick(self, table: Table, taken: set[bytes]) -> bytes | None:
        hot = _HOT_ROWS if self._rng.random() < 0.2 else 0
        for _ in range(_TRIES):
            if not len(table.rows):
                return None
            key = table.rows.any(self._rng, hot)
            if key not in taken and key not in self._kv.locks and key not in self._kv.reserved:
                return key
        return None

    def _add(self, txn: Txn, table: Table, key: bytes, old: Row | None, new: Row | None) -> None:
        op, value = (OP_DELETE, None) if new is None else (OP_PUT, new.value)
        txn.mutations.append(Mutation(key, op, value, table, new_row=new))
        if table.layout.index is None:
            return
        before = None if old is None else table.index_key(old, key)
        after = None if new is None else table.index_key(new, key)
        if before != after:
            if before is not None and self._kv.value(before) is not None:
                txn.mutations.append(Mutation(before, OP_DELETE, None))
            if after is not None:
                txn.mutations.append(Mutation(after, OP_PUT, _INDEX_VALUE))

    def rewrite(self, mutations: Sequence[Mutation]) -> list[Mutation]:
        """Make newer mutations for keys that a bulk transaction has locked. A row may be deleted, and put again
        later."""
        out = []
        for one in mutations:
            before = one.new_row or one.last_row
            if one.table is None or before is None:
                continue
            if one.new_row is not None and self._rng.random() < _UNPUT:
                out.append(Mutation(one.key, OP_DELETE, None, one.table, last_row=before))
                continue
            self._stamp += 1
            layout = before.layout
            row = Row(layout, before.key, changed(layout, self._rng, before, self._stamp))
            out.append(Mutation(one.key, OP_PUT, row.value, one.table, new_row=row))
        return out
