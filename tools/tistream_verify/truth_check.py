"""Compares the events up to a ts with the upstream's truth at that ts: counts, sums, names, and the resulting rows.

Events are kept until a truth line of a later ts arrives, and truth lines until the events up to their ts arrive. So the
needed memory grows with the distance between the two inputs.

Rows are not kept, only their sums: each event removes its old_row and adds its row. A DDL that changes columns changes
what SELECT shows without an event. Then the table's sum of rows is copied from the next truth line; its number of rows,
and every event, are still compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tistream_verify.ddl_effect import RESHAPES_NOTHING, Name, names_of
from tistream_verify.fingerprint import Sum, TableTruth, TruthLine, event_hash
from tistream_verify.violation import Findings, Rule


@dataclass(slots=True)
class _Table:
    events: Sum = field(default_factory=Sum)
    rows: Sum = field(default_factory=Sum)
    alive: bool = True
    names: set[Name] = field(default_factory=set)  # names in events since the last truth line


@dataclass(frozen=True, slots=True)
class _Row:
    commit_ts: int
    table_id: str
    name: Name
    hash: int
    come: int | None
    gone: int | None


@dataclass(frozen=True, slots=True)
class _Ddl:
    commit_ts: int
    names: frozenset[Name]
    reshapes: bool


@dataclass(slots=True)
class _Between:
    """The changes by DDL events between two truth lines: their number, the names of all tables that they concern, and
    of these the tables whose columns or rows they changed."""

    ddls: int = 0
    names: set[Name] = field(default_factory=set)
    reshaped: set[Name] = field(default_factory=set)

    def add(self, ddl: _Ddl) -> None:
        self.ddls += 1
        self.names |= ddl.names
        if ddl.reshapes:
            self.reshaped |= ddl.names


class TruthCheck:
    """Compares one consumer's stream of the whole tenant, from `start_ts` on, with the truth lines of the tenant.

    `from_beginning`: start_ts is the tenant's snapshot_ts. If it is not, the first truth line above start_ts is the
    base of the comparison, and is not checked itself.
    """

    def __init__(self, start_ts: int, found: Findings, *, from_beginning: bool = True) -> None:
        self.compared_ts = 0  # ts of the newest truth line compared
        self.compared = 0  # number of truth lines compared
        self.events = 0  # number of row events that they covered
        self._start_ts = start_ts
        self._based = from_beginning
        self._found = found
        self._reached_ts = start_ts
        self._waiting: deque[_Row | _Ddl] = deque()
        self._lines: deque[TruthLine] = deque()
        self._tables: dict[str, _Table] = {}
        self._names: dict[str, Name] = {}  # table names in the last truth line
        self._ddls = 0

    def row(self, event: Mapping[str, Any], come: int | None, gone: int | None) -> None:
        """Add a row event, with the hashes of its row (`come`) and old_row (`gone`); None: the event has none."""
        name = event["database"].lower(), event["table"].lower()
        commit_ts = int(event["commit_ts"])
        self._waiting.append(_Row(commit_ts, event["table_id"], name, event_hash(event), come, gone))
        self.reach(commit_ts - 1)

    def ddl(self, event: Mapping[str, Any]) -> None:
        """Add a ddl event."""
        commit_ts = int(event["commit_ts"])
        self._waiting.append(_Ddl(commit_ts, frozenset(names_of(event)), event["action"] not in RESHAPES_NOTHING))
        self.reach(commit_ts - 1)

    def reach(self, reached_ts: int) -> None:
        """Record that every event at or below `reached_ts` has been added. Compares the truth lines up to that ts."""
        if reached_ts > self._reached_ts:
            self._reached_ts = reached_ts
            self._compare()

    def truth(self, line: TruthLine) -> None:
        """Add the next truth line. Raises ValueError if its ts is not above that of the line before."""
        if self._lines and line.ts <= self._lines[-1].ts:
            raise ValueError(f"truth lines out of order: {line.ts} after {self._lines[-1].ts}")
        if line.ts >= self._start_ts:
            self._lines.append(line)
            self._compare()

    def _compare(self) -> None:
        while self._lines and self._lines[0].ts <= self._reached_ts:
            self._at(self._lines.popleft())

    def _at(self, line: TruthLine) -> None:
        between = self._fold(line.ts)
        if line.ts == self._start_ts or not self._based:
            self._based = True
        else:
            self._check(line, between)
            self.compared += 1
        self.compared_ts = line.ts
        self._restart_from(line)

    def _fold(self, ts: int) -> _Between:
        """Apply the kept events up to `ts` to the sums. Returns what DDL events among them have changed."""
        between = _Between()
        while self._waiting and self._waiting[0].commit_ts <= ts:
            entry = self._waiting.popleft()
            if isinstance(entry, _Ddl):
                between.add(entry)
                continue
            self.events += 1
            table = self._tables.setdefault(entry.table_id, _Table())
            if not table.alive:
                detail = f"table {entry.table_id}, dropped by {self.compared_ts}, has an event at {entry.commit_ts}"
                self._found.add(Rule.DEAD_TABLE, detail)
            table.events.add(entry.hash)
            table.names.add(entry.name)
            if entry.gone is not None:
                table.rows.remove(entry.gone)
            if entry.come is not None:
                table.rows.add(entry.come)
        return between

    def _check(self, line: TruthLine, between: _Between) -> None:
        when = f"between {self.compared_ts or self._start_ts} and {line.ts}"
        if self._ddls + between.ddls != line.ddls:
            detail = f"{between.ddls} ddl events {when}, but the upstream ran {line.ddls - self._ddls}"
            self._found.add(Rule.DDL_COUNT, detail)
        for table_id in self._tables.keys() | line.tables.keys():
            own, truth = self._tables.get(table_id, _Table()), line.tables.get(table_id)
            if truth is None:
                self._found.add(Rule.EVENTS_SUM, f"table {table_id} has events {when}, but is unknown to the upstream")
                continue
            what = f"table {table_id} ({truth.database}.{truth.table}) {when}"
            names = {self._names.get(table_id, ("", "")), (truth.database.lower(), truth.table.lower())}
            self._check_events(what, own, truth)
            if truth.alive:
                self._check_rows(what, own, truth, reshaped=_is_named(names, between.reshaped))
            if strange := own.names - names - between.names:
                self._found.add(Rule.NAME, f"{what}: events have the names {sorted(strange)}")

    def _check_events(self, what: str, own: _Table, truth: TableTruth) -> None:
        if own.events == Sum(truth.events, truth.events_sum):
            return
        difference = own.events.count - truth.events
        kind = f"{-difference} lost" if difference < 0 else f"{difference} too many" if difference else "altered"
        detail = f"{what}: events {kind}: {own.events.count} in all with sum {own.events.hex}"
        self._found.add(Rule.EVENTS_SUM, f"{detail}, the truth is {truth.events} with {truth.events_sum:016x}")

    def _check_rows(self, what: str, own: _Table, truth: TableTruth, *, reshaped: bool) -> None:
        if own.rows.count == truth.rows and (reshaped or own.rows.total == truth.rows_sum):
            return
        detail = f"{what}: {own.rows.count} rows with sum {own.rows.hex} are left"
        self._found.add(Rule.ROWS_SUM, f"{detail}, but SELECT shows {truth.rows} with {truth.rows_sum:016x}")

    def _restart_from(self, line: TruthLine) -> None:
        """Replace the own sums by those of the truth line, so that one error is reported only once."""
        self._ddls = line.ddls
        for table_id, truth in line.tables.items():
            events, rows = Sum(truth.events, truth.events_sum), Sum(truth.rows, truth.rows_sum)
            self._tables[table_id] = _Table(events, rows, truth.alive)
            self._names[table_id] = truth.database.lower(), truth.table.lower()
        for table_id in self._tables.keys() - line.tables.keys():
            del self._tables[table_id]


def _is_named(names: set[Name], reshaped: set[Name]) -> bool:
    return any(name in reshaped or (name[0], "") in reshaped for name in names)
