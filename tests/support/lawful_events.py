"""A small database whose pulled events and truth lines are right by construction; seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from tistream_verify.fingerprint import Sum, TableSums, TruthLine, row_hash

Event = dict[str, Any]
SNAPSHOT_TS = 1_000


@dataclass
class _Table:
    table_id: str
    name: str
    columns: list[str]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class LawfulEvents:
    """`events` in the order of a pull, resolved ones among them; `lines` the truth."""

    seed: int = 0
    transactions: int = 120
    events: list[Event] = field(default_factory=list)
    lines: list[TruthLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._ts = SNAPSHOT_TS
        self._version = 50
        self._next_id = 100
        self._ddls = 0
        self._sums: dict[str, TableSums] = {}
        self._tables: dict[str, _Table] = {}
        self._line()
        for number in range(self.transactions):
            self._ts += self._rng.randint(1, 50)
            if not self._tables or self._rng.random() < 0.06:
                self._schema_change()
            else:
                self._transaction()
            if number % 5 == 4:
                self.events.append({"type": "resolved", "resolved_ts": str(self._ts), "cursor": f"c{self._ts}"})
            if number % 7 == 6:
                self._line()
        self._ts += 1
        self.events.append({"type": "resolved", "resolved_ts": str(self._ts), "cursor": f"c{self._ts}"})
        self._line()

    def copy(self) -> list[Event]:
        """Events that may be spoiled, each by itself."""
        copied: list[Event] = orjson.loads(orjson.dumps(self.events))
        return copied

    def _line(self) -> None:
        tables = {table_id: sums.truth() for table_id, sums in self._sums.items()}
        self.lines.append(TruthLine(self._ts, self._ddls, tables))

    def _transaction(self) -> None:
        rng, start_ts = self._rng, self._ts - 1
        for table in rng.sample(sorted(self._tables.values(), key=lambda t: t.table_id), min(2, len(self._tables))):
            keys = [str(key) for key in rng.sample(range(30), rng.randint(1, 4))]
            gone = [key for key in keys if key in table.rows and rng.random() < 0.3]
            for key in gone:
                self._event(table, key, None, start_ts)
            for key in keys:
                if key not in gone:
                    row = {"id": key, **{name: rng.randrange(10**9) for name in table.columns}}
                    self._event(table, key, row, start_ts)

    def _event(self, table: _Table, key: str, row: dict[str, Any] | None, start_ts: int) -> None:
        event = {
            "type": "row",
            "op": "delete" if row is None else "put",
            "commit_ts": str(self._ts),
            "start_ts": str(start_ts),
            "database": "shop",
            "table": table.name,
            "table_id": table.table_id,
            "schema_version": str(self._version),
            "key": {"id": key},
            "row": row,
            "old_row": table.rows.get(key),
        }
        self._sums[table.table_id].see(event)
        self.events.append(event)
        if row is None:
            del table.rows[key]
        else:
            table.rows[key] = row

    def _schema_change(self) -> None:
        names = sorted(self._tables)
        kind = self._rng.choice(["create", "add", "truncate", "rename", "drop"]) if len(names) > 1 else "create"
        name = self._rng.choice(names) if names else ""
        if kind == "create":
            name = f"t{self._next_id}"
            self._create(name, ["a"])
            self._ddl("create table", name, name)
        elif kind == "add":
            self._add_column(self._tables[name])
            self._ddl("add column", name, name)
        elif kind == "truncate":
            self._sums[self._tables[name].table_id].drop()
            self._create(name, self._tables[name].columns)
            self._ddl("truncate table", name, name)
        elif kind == "rename":
            self._rename(name, f"r{self._ts}")
            self._ddl("rename table", f"r{self._ts}", name)
        else:
            self._sums[self._tables.pop(name).table_id].drop()
            self._ddl("drop table", name, name)

    def _rename(self, name: str, new: str) -> None:
        table = self._tables.pop(name)
        table.name = new
        self._tables[new] = table
        self._sums[table.table_id].table = new

    def _create(self, name: str, columns: list[str]) -> None:
        self._next_id += 1
        table = _Table(str(self._next_id), name, list(columns))
        self._tables[name] = table
        self._sums[table.table_id] = TableSums("shop", name)

    def _add_column(self, table: _Table) -> None:
        column = f"c{self._ts}"
        table.columns.append(column)
        table.rows = {key: {**row, column: 5} for key, row in table.rows.items()}
        rows = Sum()
        for key, row in table.rows.items():
            rows.add(row_hash({"id": key}, row))
        self._sums[table.table_id].rows = rows

    def _ddl(self, action: str, table: str, before: str) -> None:
        self._version += 1
        self._ddls += 1
        self.events.append(
            {
                "type": "ddl",
                "commit_ts": str(self._ts),
                "database": "shop",
                "table": table,
                "query": f"{action} {table}",
                "action": action,
                "schema_version": str(self._version),
                "involved": [{"database": "shop", "table": name} for name in {table, before}],
            }
        )


def rows_of(events: list[Event]) -> Iterator[int]:
    """The places of the row events."""
    return (at for at, event in enumerate(events) if event["type"] == "row")
