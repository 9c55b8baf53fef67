"""Computes the truth: the rows that the platform must have, the events that a pull must return, and running sums of
both. No I/O.

Transactions are added in the order in which their commits are decided. They are processed ("settled") in the order of
commit_ts, once no lower commit_ts can follow. A row is shown by its table's version before its commit_ts (design.md 5),
so all rows of a commit_ts come before its schema changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import orjson
import polars as pl

from tistream.schema.tidb.actions import action_name
from tistream_upstream.schema.layout import Layout, Row
from tistream_upstream.schema.schema_change import DdlText, SchemaChange, TableShape
from tistream_upstream.tikv.kv import Mutation, Txn
from tistream_verify.fingerprint import Sum, TableSums, TruthLine, event_hash, row_hash

COLUMNS = {
    "key": pl.Binary,
    "start_ts": pl.Int64,
    "commit_ts": pl.Int64,
    "op": pl.Int8,
    "value": pl.Binary,
    "old_value": pl.Binary,
    "txn_source": pl.Int64,
}
_INDEX = b"_i"
Event = dict[str, Any]


def _hashed(key: bytes, shown: bytes) -> int:
    return row_hash(orjson.Fragment(key), orjson.Fragment(shown))  # type: ignore[arg-type]


class _TableTruth:
    """The rows of one table, by id, after the last commit that was processed, with their sums."""

    __slots__ = ("layout", "rows", "sums")

    def __init__(self, shape: TableShape) -> None:
        self.layout = shape.layout
        self.rows: dict[bytes, Row] = {}
        self.sums = TableSums(shape.database, shape.name)

    def reshape(self, shape: TableShape) -> None:
        """Replace the table's version. What SELECT shows of its rows may change, without events."""
        before, self.layout = self.layout, shape.layout
        self.sums.database, self.sums.table = shape.database, shape.name
        if shape.layout is None:
            self.rows = {}
            self.sums.drop()
        elif before is None or before.visible != shape.layout.visible:
            self.sums.rows = Sum()
            for row in self.rows.values():
                self.sums.rows.add(row.hash(shape.layout, _hashed))


class Truth:
    """The truth of a cluster. With `keep`, every committed row and event is kept as well, for tests and short runs."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._decided: list[tuple[int, int, int, Txn]] = []
        self._count = 0
        self._tables: dict[int, _TableTruth] = {}
        self._version = 0
        self._ddls = 0
        self._raw: list[tuple[Any, ...]] = []
        self._events: list[Event] = []
        self.snapshot_ts = 0
        self.ts = 0

    # -- input ----------------------------------------------------------------------------------------------------

    def decided(self, txn: Txn) -> None:
        """Add a transaction whose commit_ts is decided."""
        self._count += 1
        heapq.heappush(self._decided, (txn.commit_ts, txn.start_ts, self._count, txn))

    def add_table(self, shape: TableShape) -> None:
        """Add a table that exists from the beginning."""
        self._tables[shape.table_id] = _TableTruth(shape)

    def begin(self, snapshot_ts: int) -> None:
        """Begin the tenant at `snapshot_ts`. Earlier commits are rows of the snapshot and not events."""
        self.snapshot_ts = snapshot_ts
        self.settle(snapshot_ts, counted=False)

    def settle(self, ts: int, *, counted: bool = True) -> None:
        """Process the transactions at or below `ts`; no further commit may be decided there. With `counted` false their
        rows change the tables, but count as no events: they are from before the snapshot."""
        for commit_ts, group in groupby(self._due(ts), key=lambda txn: txn.commit_ts):
            txns = list(group)
            for txn in txns:
                self._rows(txn, counted=counted)
            for change in [txn.schema for txn in txns if txn.schema is not None]:
                self._version = max(self._version, change.version)
                self._reshape(change)
            for change in [txn.schema for txn in txns if txn.schema is not None]:
                if change.event is not None and counted:
                    self._ddls += 1
                    if self._keep:
                        self._events.append(_ddl_event(commit_ts, change.event, self._version))
        self.ts = max(self.ts, ts)

    def _due(self, ts: int) -> Iterator[Txn]:
        while self._decided and self._decided[0][0] <= ts:
            yield heapq.heappop(self._decided)[3]

    def _rows(self, txn: Txn, *, counted: bool) -> None:
        events: list[tuple[Any, ...]] = []
        for one in txn.mutations:
            if not one.op:
                continue  # only locked
            if self._keep and counted and one.key[9:11] != _INDEX:
                self._raw.append((one.key, txn.start_ts, txn.commit_ts, one.op, one.value, one.old_value, txn.source))
            if one.table is None:
                continue
            table = self._tables.get(one.table.id)
            if table is not None and table.layout is not None:
                event = self._row(txn, one, table, table.layout, counted=counted)
                if event is not None and self._keep:
                    events.append((one.table.id, event["op"] == "put", one.key, event))
        self._events += [event for *_, event in sorted(events, key=lambda known: known[:3])]

    def _row(self, txn: Txn, one: Mutation, table: _TableTruth, layout: Layout, *, counted: bool) -> Event | None:
        old = table.rows.get(one.key)
        new = one.new_row
        if old is None and new is None:
            return None
        before = None if old is None else old.shown(layout)
        if old is not None:
            table.sums.rows.remove(old.hash(layout, _hashed))
        if new is None:
            del table.rows[one.key]
            shown = None
        else:
            table.rows[one.key] = new
            shown = new.shown(layout)
            table.sums.rows.add(new.hash(layout, _hashed))
        if not counted or shown == before:
            return None
        event: Event = {
            "commit_ts": str(txn.commit_ts),
            "start_ts": str(txn.start_ts),
            "op": "delete" if shown is None else "put",
            "table_id": str(layout.table_id),
            "key": orjson.Fragment((new or old).key),  # type: ignore[union-attr]
            "row": None if shown is None else orjson.Fragment(shown),
            "old_row": None if before is None else orjson.Fragment(before),
        }
        table.sums.events.add(event_hash(event))
        if not self._keep:
            return event
        sums = table.sums
        full = {"type": "row", **event, "database": sums.database, "table": sums.table}
        full["schema_version"] = str(self._version)
        kept: Event = orjson.loads(orjson.dumps(full))
        return kept

    def _reshape(self, change: SchemaChange) -> None:
        for shape in change.tables:
            known = self._tables.get(shape.table_id)
            if known is None:
                self.add_table(shape)
            else:
                known.reshape(shape)

    # -- results --------------------------------------------------------------------------------------------------

    def line(self) -> TruthLine:
        """The truth line as of the last ts that was processed."""
        tables = {str(table_id): table.sums.truth() for table_id, table in self._tables.items()}
        return TruthLine(self.ts, self._ddls, tables)

    @property
    def rows(self) -> pl.DataFrame:
        """Every committed row above the snapshot that was processed, without index entries (schema COLUMNS). The
        platform must have them. Requires `keep`."""
        assert self._keep
        return pl.DataFrame(self._raw, COLUMNS, orient="row").sort("commit_ts", "start_ts", "key")

    @property
    def events(self) -> list[Mapping[str, Any]]:
        """The row and DDL events that PullTenant must return, in order. Requires `keep`."""
        assert self._keep
        return list(self._events)

    @property
    def live(self) -> int:
        """The number of rows that SELECT shows, over all tables."""
        return sum(len(table.rows) for table in self._tables.values())


def _ddl_event(commit_ts: int, text: DdlText, version: int) -> Event:
    return {
        "type": "ddl",
        "commit_ts": str(commit_ts),
        "database": text.database,
        "table": text.table,
        "query": text.query,
        "action": action_name(text.action, undone=text.undone),
        "schema_version": str(version),
        "involved": [{"database": database, "table": table} for database, table in text.involved],
    }
