"""An index of table names over time. It finds the table that had a name at a ts, and all names that a database has
contained."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from tistream.model.ts import MAX_TS


@dataclass(frozen=True, slots=True)
class NamePeriod:
    """A period in which a logical table had a name. The name is that of rows with `from_ts < commit_ts <= to_ts`,
    because a row belongs to the schema strictly before its commit_ts."""

    from_ts: int
    to_ts: int
    table_id: int


@dataclass(slots=True)
class NameIndex:
    """The tenures of every (database, table) name: the periods in which a table had it. Names are folded
    (visible.fold). At any ts, at most one table has a name."""

    _closed: dict[tuple[str, str], list[NamePeriod]] = field(default_factory=dict)
    _open: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # name -> (from_ts, table_id)
    _tables_of: dict[str, set[str]] = field(default_factory=dict)

    def leave(self, name: tuple[str, str], table_id: int, ts: int) -> None:
        """Record that the table does not have the name any more after `ts`: its tenure ends. Call it before `enter` for
        the table that takes over the name."""
        from_ts, bearer = self._open.get(name, (ts, None))
        if bearer != table_id:  # `enter` of the name's next table has ended the tenure
            return
        del self._open[name]
        if from_ts < ts:
            self._closed.setdefault(name, []).append(NamePeriod(from_ts, ts, table_id))

    def enter(self, name: tuple[str, str], table_id: int, ts: int) -> None:
        """Begin a tenure of `table_id` after `ts`. The tenure of the table that has the name now ends."""
        if name in self._open:
            self.leave(name, self._open[name][1], ts)
        self._open[name] = (ts, table_id)
        self._tables_of.setdefault(name[0], set()).add(name[1])

    def tables_named(self, name: tuple[str, str], low: int, high: int) -> Iterator[NamePeriod]:
        """The tenures of a name that overlap `low < t <= high`, cut to this window, oldest first."""
        closed = self._closed.get(name, [])
        for period in closed[bisect_right(closed, low, key=lambda period: period.to_ts) :]:
            if period.from_ts >= high:
                return
            yield NamePeriod(max(low, period.from_ts), min(high, period.to_ts), period.table_id)
        if name in self._open:
            from_ts, table_id = self._open[name]
            if from_ts < high:
                yield NamePeriod(max(low, from_ts), high, table_id)

    def at(self, name: tuple[str, str], ts: int) -> int | None:
        """The logical id of the table that has the name after the changes at `ts`; None if no table has it."""
        if ts >= MAX_TS:
            return self._open[name][1] if name in self._open else None
        return next((period.table_id for period in self.tables_named(name, ts, ts + 1)), None)

    def tables(self, database: str) -> Iterator[tuple[str, str]]:
        """The (database, table) names of all tables that the database has ever contained, except those that `forget`
        has dropped."""
        for table in self._tables_of.get(database, ()):
            yield database, table

    def forget(self, ts: int) -> None:
        """Drop tenures that ended at or below `ts`, and names that have no other tenure."""
        for name in list(self._closed):
            kept = [period for period in self._closed[name] if period.to_ts > ts]
            if kept:
                self._closed[name] = kept
            else:
                del self._closed[name]
        for database, tables in list(self._tables_of.items()):
            tables &= {
                table for table in tables if (database, table) in self._closed or (database, table) in self._open
            }
            if not tables:
                del self._tables_of[database]
