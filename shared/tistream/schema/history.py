"""The MVCC history of one tenant's schema: a pure function of its records (design.md 4 and 5).

`forget` drops the history below a base_ts. After that, every reading method raises Gone for a ts below base_ts, and for
a window that begins below it.

The history has three kinds of timelines: for each physical id, the logical table that owns it; for each logical table,
its visible versions; for each name, the table that has it. A change at ts T applies to rows with commit_ts > T, because
a row is decoded with the newest schema strictly before its commit_ts. Not thread-safe: callers need a lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from tistream.errors import Gone
from tistream.schema.current import CurrentSchema
from tistream.schema.ddl_event import DdlEvent, JobTracker, VisibleChange
from tistream.schema.imports import ImportModes, ImportPeriod
from tistream.schema.names import NameIndex
from tistream.schema.records import BaseState, Record
from tistream.schema.tidb import actions
from tistream.schema.timeline import Timeline
from tistream.schema.visible import Database, TableVersion, fold

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListedTable:
    """One table in the answer of ListTables."""

    name: str
    table_id: int
    schema_version: int


@dataclass(frozen=True, slots=True)
class NamedInterval:
    """A table that had a name, for rows with `from_ts < commit_ts <= to_ts`. These rows have the physical ids
    `physical_ids`."""

    from_ts: int
    to_ts: int
    table_id: int
    physical_ids: tuple[int, ...]


def _forget(lines: dict[int, Timeline[T]], ts: int) -> None:
    for one in [one for one, line in lines.items() if line.forget(ts)]:
        del lines[one]


class History:
    """Every version of every schema since `base_ts`. Records are applied in (commit_ts, start_ts) order."""

    def __init__(self, snapshot_ts: int) -> None:
        self.snapshot_ts = snapshot_ts
        self.resolved_ts = snapshot_ts
        self._applied_ts = 0
        self._forgotten_ts = 0
        self._current = CurrentSchema()
        # Timelines by database id, table id and physical id.
        self._database_versions: dict[int, Timeline[Database | None]] = {}
        self._versions: dict[int, Timeline[TableVersion | None]] = {}
        self._owners: dict[int, Timeline[int | None]] = {}
        self._names = NameIndex()
        self._version_ts: list[int] = []
        self._version_numbers: list[int] = []
        self._tables_ts: list[int] = []  # the timestamps at which any visible table changed, ascending
        self._events: list[DdlEvent] = []
        self._jobs = JobTracker()
        self._imports = ImportModes()
        self._recovered: dict[int, list[int]] = {}  # by physical id: when a dropped table came back with it

    # ---- writing

    def apply(self, records: Iterable[Record]) -> None:
        """Apply records in (commit_ts, start_ts) order. All records of one commit_ts must be in one call."""
        for commit_ts, group in groupby(records, key=lambda record: record.commit_ts):
            assert commit_ts > self._applied_ts, f"record at {commit_ts} after {self._applied_ts} was applied"
            self._applied_ts = commit_ts
            first = len(self._events)
            for start_ts, transaction in groupby(group, key=lambda record: record.start_ts):
                self._transaction(commit_ts, start_ts, list(transaction))
            version = self.schema_version_at(commit_ts)
            self._events[first:] = [replace(event, schema_version=version) for event in self._events[first:]]

    def advance(self, resolved_ts: int) -> None:
        """Raise resolved_ts: the caller has applied every record at or below it. A lower value changes nothing."""
        self.resolved_ts = max(self.resolved_ts, resolved_ts)

    @property
    def base_ts(self) -> int:
        """The lowest ts that the reading methods accept."""
        return max(self.snapshot_ts, self._forgotten_ts)

    def base(self, ts: int) -> BaseState:
        """The state that the newest records up to `ts` do not contain, and that a history which begins at `ts` needs in
        addition. Raises Gone."""
        self._refuse_below(ts)
        return BaseState(self._current.known_ids(), self._jobs.marks(ts), self._imports.ended(ts))

    def forget(self, before_ts: int) -> None:
        """Drop the history below `before_ts`: reads below it raise Gone from now on. Every record at or below it must
        have been applied."""
        if before_ts <= self.base_ts:
            return
        self._forgotten_ts = before_ts
        _forget(self._database_versions, before_ts)
        _forget(self._versions, before_ts)
        _forget(self._owners, before_ts)
        self._recovered = {one: found for one, found in self._recovered.items() if found[-1] > before_ts}
        self._names.forget(before_ts)
        self._jobs.forget(before_ts)
        del self._tables_ts[: bisect_left(self._tables_ts, before_ts)]
        keep = max(0, bisect_right(self._version_ts, before_ts) - 1)
        del self._version_ts[:keep], self._version_numbers[:keep]
        self._events = [event for event in self._events if event.commit_ts > before_ts]

    def _transaction(self, commit_ts: int, start_ts: int, records: Sequence[Record]) -> None:
        touched = self._current.apply(records)
        if touched.base is not None:
            self._jobs.restore(touched.base.jobs, commit_ts)
            self._imports.restore(touched.base.imports)
        for version in touched.versions:
            self._apply_version(commit_ts, version)
        visible = VisibleChange(
            dict(self._change_tables(commit_ts, touched.tables)),
            dict(self._change_databases(commit_ts, touched.databases)),
        )
        if any(change.job is not None and change.job.type in actions.RECOVERS for change in touched.jobs):
            for before, after in visible.tables.values():
                for physical_id in after.head.physical_ids if after and not before else ():
                    self._recovered.setdefault(physical_id, []).append(commit_ts)
        for one in touched.restored:
            self._imports.ran(self._physical_ids(one.ids), one.from_ts, one.to_ts)
        for change in touched.jobs:
            event = self._jobs.apply(change, visible, self._current, commit_ts, start_ts)
            if event is not None:
                self._events.append(event)

    def _apply_version(self, commit_ts: int, version: int) -> None:
        if version <= (self._version_numbers[-1] if self._version_numbers else 0):
            return
        if self._version_ts and self._version_ts[-1] == commit_ts:
            self._version_numbers[-1] = version
            return
        self._version_ts.append(commit_ts)
        self._version_numbers.append(version)

    def _change_databases(
        self, commit_ts: int, ids: Iterable[int]
    ) -> Iterator[tuple[int, tuple[Database | None, Database | None]]]:
        for database_id in sorted(ids):
            line = self._database_versions.setdefault(database_id, Timeline(None))
            before, after = line.last, self._current.visible_database(database_id)
            line.set(commit_ts, after)
            if before != after:
                yield database_id, (before, after)

    def _change_tables(
        self, commit_ts: int, ids: Iterable[int]
    ) -> Iterator[tuple[int, tuple[TableVersion | None, TableVersion | None]]]:
        changed = {}
        for table_id in sorted(ids):
            line = self._versions.get(table_id)
            before = line.last if line else None
            after = self._current.visible_table(table_id)
            if before == after:
                continue
            if line is None:
                line = self._versions[table_id] = Timeline(None)
            line.set(commit_ts, after)
            changed[table_id] = (before, after)
        if changed and self._tables_ts[-1:] != [commit_ts]:
            self._tables_ts.append(commit_ts)
        self._move_ids(commit_ts, changed)
        self._move_names(commit_ts, changed)
        self._note_imports(commit_ts, changed)
        for table_id, (before, after) in changed.items():
            if before is None or after is None or before.signature != after.signature:
                yield table_id, (before, after)

    def _move_ids(self, commit_ts: int, changed: dict[int, tuple[TableVersion | None, TableVersion | None]]) -> None:
        """Update which table owns which physical id. All ids are released before any is assigned, because EXCHANGE
        PARTITION swaps two."""
        for table_id, (before, after) in changed.items():
            kept = set(after.head.physical_ids) if after else set()
            for physical_id in before.head.physical_ids if before else ():
                owner = self._owners.get(physical_id)  # None if a later owner released it and `forget` dropped it
                if physical_id not in kept and owner is not None and owner.last == table_id:
                    owner.set(commit_ts, None)
        for table_id, (_, after) in changed.items():
            for physical_id in after.head.physical_ids if after else ():
                line = self._owners.get(physical_id)
                if line is None:
                    line = self._owners[physical_id] = Timeline(None)
                if line.last != table_id:
                    line.set(commit_ts, table_id)

    def _note_imports(
        self, commit_ts: int, changed: dict[int, tuple[TableVersion | None, TableVersion | None]]
    ) -> None:
        for before, after in changed.values():
            if after is not None and after.head.importing:
                self._imports.begin(after.head.physical_ids, commit_ts)
            elif after is not None and before is not None and before.head.importing:
                self._imports.end(after.head.physical_ids, commit_ts)
            for one in before.head.physical_ids if before else ():
                owner = self._owners.get(one)
                if owner is None or owner.last is None:
                    self._imports.drop(one)

    def _physical_ids(self, ids: Iterable[int]) -> Iterator[int]:
        """The physical ids of these tables, or of these partitions. An id that belongs to no visible table is left
        out, because no row of it is served."""
        for one in ids:
            table = self._current.visible_table(one)
            owner = self._owners.get(one)
            if table is not None:
                yield from table.head.physical_ids
            elif owner is not None and owner.last is not None:
                yield one

    def _move_names(self, commit_ts: int, changed: dict[int, tuple[TableVersion | None, TableVersion | None]]) -> None:
        moved = [
            (table_id, before.folded if before else None, after.folded if after else None)
            for table_id, (before, after) in changed.items()
        ]
        for table_id, old, new in moved:
            if old is not None and old != new:
                self._names.leave(old, table_id, commit_ts)
        for table_id, old, new in moved:
            if new is not None and old != new:
                self._names.enter(new, table_id, commit_ts)

    def _refuse_below(self, ts: int) -> None:
        if ts < self._forgotten_ts:
            earliest = str(self._forgotten_ts)
            raise Gone(f"the schema history begins at {earliest}; {ts} lies below it", {"earliest_ts": earliest})

    # ---- reading: one row's schema

    def table_at(self, physical_id: int, commit_ts: int) -> TableVersion | None:
        """The table version with which a row of `commit_ts` is decoded; None if its table or partition is not visible
        then. Raises Gone if the version strictly before `commit_ts` may have been dropped."""
        self._refuse_below(commit_ts - 1)
        owner = self._owners.get(physical_id)
        table_id = owner.before(commit_ts) if owner else None
        return None if table_id is None else self._versions[table_id].before(commit_ts)

    def versions_of(self, physical_id: int, low: int, high: int) -> list[tuple[int, int, TableVersion | None]]:
        """What `table_at` returns for every commit_ts in `low < t <= high`, as intervals (from exclusive, to inclusive,
        version). Raises Gone for a window that begins below base_ts."""
        self._refuse_below(low)
        owner = self._owners.get(physical_id)
        if owner is None:
            return [(low, high, None)] if low < high else []
        out: list[tuple[int, int, TableVersion | None]] = []
        for from_ts, to_ts, table_id in owner.runs(low, high):
            if table_id is None:
                out.append((from_ts, to_ts, None))
            else:
                out.extend(self._versions[table_id].runs(from_ts, to_ts))
        return out

    def ever_had_id(self, physical_id: int) -> bool:
        """Whether any TableInfo ever contained the id, visible or not, system schemas included."""
        return self._current.ever_had_id(physical_id)

    def had_rows(self, physical_id: int, ts: int) -> bool:
        """Whether the physical id may have had rows at `ts`: a visible table had it, or a dropped one, which RECOVER or
        FLASHBACK has brought back since with these rows. If the history at `ts` was dropped, base_ts counts instead; so
        the result is True for an id that was created between the two, and False for one that was dropped between
        them."""
        owner = self._owners.get(physical_id)
        if owner is None:
            return False
        begins_ts = max(ts, self.base_ts)
        came_ts = (at for at, table_id in owner.changes() if at > begins_ts and table_id is not None)
        return owner.at(begins_ts) is not None or next(came_ts, None) in self._recovered.get(physical_id, ())

    def imports(self, physical_ids: Iterable[int] | None = None) -> dict[int, ImportPeriod]:
        """The last IMPORT INTO or restore into each of these physical ids that has had one (imports.py). With None: of
        all physical ids that belong to a table now."""
        found = (
            (one, self._imports.of(one)) for one in (self._imports.ids() if physical_ids is None else physical_ids)
        )
        return {one: of for one, of in found if of is not None}

    def schema_version_before(self, commit_ts: int) -> int:
        """The highest schema version whose `Diff:{v}` key was committed strictly before `commit_ts`; 0 before the
        first. Raises Gone if that version may have been dropped."""
        self._refuse_below(commit_ts - 1)
        at = bisect_left(self._version_ts, commit_ts)
        return self._version_numbers[at - 1] if at else 0

    def schema_version_at(self, ts: int) -> int:
        """The highest schema version whose `Diff:{v}` key was committed at or before `ts`; 0 before the first. Raises
        Gone for a ts below base_ts."""
        self._refuse_below(ts)
        at = bisect_right(self._version_ts, ts)
        return self._version_numbers[at - 1] if at else 0

    def schema_versions(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """What `schema_version_before` returns for every t in `low < t <= high`, as intervals (from exclusive, to
        inclusive, version). Raises Gone for a window that begins below base_ts."""
        self._refuse_below(low)
        out = []
        at = bisect_right(self._version_ts, low)
        while low < high:
            to_ts = min(self._version_ts[at], high) if at < len(self._version_ts) else high
            out.append((low, to_ts, self._version_numbers[at - 1] if at else 0))
            low, at = to_ts, at + 1
        return out

    # ---- reading: names

    def databases(self, ts: int) -> list[str]:
        """The names of the databases visible at `ts`, sorted. Raises Gone for a ts below base_ts."""
        self._refuse_below(ts)
        found = (line.at(ts) for line in self._database_versions.values())
        return sorted(database.name for database in found if database is not None)

    def tables(self, ts: int, database: str) -> list[ListedTable] | None:
        """The base tables (not views, not sequences) visible at `ts`, sorted by name; None if no visible database had
        the name at `ts`. Raises Gone for a ts below base_ts."""
        if fold(database) not in map(fold, self.databases(ts)):
            return None
        version = self.schema_version_at(ts)
        found = (found.head for found in self.visible_tables(ts, database) if found.head.kind == "table")
        return sorted(
            (ListedTable(table.name, table.id, version) for table in found), key=lambda listed: fold(listed.name)
        )

    def visible_tables(self, ts: int, database: str) -> Iterator[TableVersion]:
        """The tables, views and sequences of a database that are visible at `ts`. Raises Gone for a ts below
        base_ts."""
        self._refuse_below(ts)
        for name in self._names.tables(fold(database)):
            table_id = self._names.at(name, ts)
            version = self._versions[table_id].at(ts) if table_id is not None else None
            if version is not None and version.folded == name:
                yield version

    def database_exists(self, database: str, low: int, high: int) -> bool:
        """Whether a visible database had the name at any t in `low < t <= high`. Raises Gone for a window that begins
        below base_ts."""
        self._refuse_below(low)
        folded = fold(database)
        for line in self._database_versions.values():
            for _, _, version in line.runs(low, high):
                if version is not None and fold(version.name) == folded:
                    return True
        return False

    def tables_named(self, database: str, table: str | None, low: int, high: int) -> list[NamedInterval]:
        """The tables that had a name at any t in `low < t <= high`. With `table` None: the tables with any name in the
        database.

        A table whose physical ids changed within the window has one entry for each set of ids. Views and sequences are
        included, with no physical ids. Raises Gone for a window that begins below base_ts.
        """
        self._refuse_below(low)
        folded = fold(database)
        names = self._names.tables(folded) if table is None else [(folded, fold(table))]
        out = []
        for name in names:
            for period in self._names.tables_named(name, low, high):
                out += self._physical_runs(period.table_id, period.from_ts, period.to_ts)
        return sorted(out, key=lambda found: (found.from_ts, found.table_id))

    def _physical_runs(self, table_id: int, low: int, high: int) -> list[NamedInterval]:
        out: list[NamedInterval] = []
        for from_ts, to_ts, version in self._versions[table_id].runs(low, high):
            ids = version.head.physical_ids if version else ()
            if out and out[-1].physical_ids == ids:
                out[-1] = replace(out[-1], to_ts=to_ts)
            else:
                out.append(NamedInterval(from_ts, to_ts, table_id, ids))
        return out

    def versions_within(self, low: int, high: int) -> Iterator[TableVersion]:
        """Every version of a table, view or sequence that decodes rows of any commit_ts in `low < t <= high`. Raises
        Gone for a window that begins below base_ts."""
        self._refuse_below(low)
        for line in self._versions.values():
            yield from (version for _, _, version in line.runs(low, high) if version is not None)

    def steady_since(self, low: int, high: int) -> int | None:
        """The ts of the last schema change at or below `low`, of any table; 0 if no such change is known. None if a
        table changes strictly between `low` and `high`, so that rows of this window may need two versions of it."""
        at = bisect_right(self._tables_ts, low)
        if at < bisect_left(self._tables_ts, high):
            return None
        return self._tables_ts[at - 1] if at else 0

    # ---- reading: DDL

    def ddl_events(self, low: int, high: int, database: str | None = None, table: str | None = None) -> list[DdlEvent]:
        """The DDL events with `low < commit_ts <= high`, in order. With `database`, or `database` and `table`, only the
        events that involve it. Raises Gone for a window that begins below base_ts."""
        self._refuse_below(low)
        first = bisect_right(self._events, low, key=lambda event: event.commit_ts)
        last = bisect_right(self._events, high, key=lambda event: event.commit_ts)
        events = self._events[first:last]
        if database is None:
            return events
        folded, wanted = fold(database), None if table is None else fold(table)
        return [event for event in events if event.concerns(folded, wanted)]
