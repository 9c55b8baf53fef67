"""What a pull reads from: the committed segments and the schema history of one tenant, guarded by one lock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.concurrency import Lock
from tistream.errors import Gone, Unavailable
from tistream.format.segment import SegmentRef
from tistream.model import raw_row
from tistream.model.ts import MAX_TS, Window
from tistream.pool.segment_index import SegmentIndex
from tistream.read import plan
from tistream.read.chosen_scope import ChosenIds, ChosenScope, chosen_ids
from tistream.read.cursor import Scope
from tistream.read.events import Ddls
from tistream.read.group_cache import GroupCache
from tistream.read.plan import GroupRef
from tistream.read.raw_scope import RawScope
from tistream.read.row_events import Interval, Shapes
from tistream.read.shared_work import SharedResult
from tistream.read.source_contract import Alive, DerivedResult, GroupIndex, GroupStatistics, T
from tistream.schema.history import History, ListedTable, NamedInterval
from tistream.schema.imports import ImportPeriod
from tistream.schema.visible import TableVersion, fold


def not_kept(ts: int, earliest_ts: int) -> Gone:
    """Build the error for a read from `ts` on, if changes above `ts` may have been deleted already."""
    return Gone(f"ts {ts} lies below the earliest one kept, {earliest_ts}", {"earliest_ts": str(earliest_ts)})


class TenantSource:
    """Implements ScanSource (source_contract.py) for one tenant. `lock` guards history and segments; row groups are
    read without it. Methods that need the schema history raise Unavailable while it is being read anew. `segments`
    raises Gone for a window that begins below the retained_ts."""

    def __init__(
        self,
        lock: Lock,
        history: Callable[[], History | None],
        segments: Callable[[], Iterable[SegmentIndex]],
        cache: GroupCache,
        replan: Callable[[], None],
        retained_ts: Callable[[], int] = lambda: 0,
        snapshot_id: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`history` returns the schema history; None while it is being read anew. `segments` returns the indexes of all
        live segments, and `replan` reads the manifests again. Changes at or below the ts that `retained_ts` returns may
        be gone. `snapshot_id` returns the highest table id in the tenant's snapshot; None if it cannot be read any
        more."""
        self.replan = replan
        self._lock = lock
        self._history_now = history
        self._segments = segments
        self._cache = cache
        self._retained_ts = retained_ts
        self._snapshot_id = snapshot_id
        self._chosen = ChosenIds()
        self._worked_of: History | None = None
        # Part of the key of shared results, so that results of other sources and of earlier histories are not used.
        self._mine = object()

    def _history(self) -> History:
        history = self._history_now()
        if history is None:
            raise Unavailable("the tenant's schema history is being read anew")
        return history

    def horizon(self, window: Window, rows: int) -> int:
        with self._lock:
            found = [index.beginnings(window) for index in self._segments()]
        begins = np.concatenate([np.empty(0, np.int64), *(begins for begins, _ in found)])
        counts = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in found)])
        return plan.horizon(begins, counts, window, rows)

    def segments(self, window: Window) -> list[SegmentRef]:
        with self._lock:
            retained_ts = self._retained_ts()
            if window.low < retained_ts:
                raise not_kept(window.low, retained_ts)
            return [segment for index in self._segments() for segment in index.overlapping(window)]

    def physical_ids(self, scope: Scope, window: Window) -> Int64s | None:
        if isinstance(scope, RawScope):
            return None if scope.keyspace is None else np.array([raw_row.table_id(scope.keyspace)], np.int64)
        if isinstance(scope, ChosenScope):
            return self._chosen_ids(scope, window)
        if scope.database is None:
            return None
        with self._lock:
            tables = self._history().tables_named(scope.database, scope.table, window.low, window.high)
        return np.array(sorted({one for table in tables for one in table.physical_ids}), dtype=np.int64)

    def _chosen_ids(self, scope: ChosenScope, window: Window) -> Int64s | None:
        with self._lock:
            history = self._history()
            found = self._chosen.known(history, scope, window)
            if found is not None:
                return found.ids
            tables = [one for one in history.versions_within(window.low, window.high) if one.head.kind == "table"]
            since = history.steady_since(window.low, window.high)
        found = chosen_ids(tables, scope)  # without the lock, because rules may be many
        with self._lock:
            self._chosen.keep(history, scope, since, found)
        return found.ids

    def shapes(self, scope: Scope, ids: Sequence[int], window: Window) -> Shapes:
        with self._lock:
            history = self._history()
            unknown = frozenset(one for one in ids if not history.ever_had_id(one))
            intervals = {one: _shown(history, scope, one, window) for one in ids if one not in unknown}
            versions = history.schema_versions(window.low, window.high)
        return Shapes(
            intervals=intervals,
            unknown=unknown,
            version_ts=np.array([low for low, _, _ in versions], dtype=np.int64),
            versions=np.array([version for _, _, version in versions], dtype=np.int64),
        )

    def logical_id(self, physical_id: int, commit_ts: int) -> int:
        if physical_id < 0:  # a table id of RawKV
            return raw_row.keyspace_of(physical_id) + 1
        with self._lock:
            version = self._history().table_at(physical_id, commit_ts)
        return physical_id if version is None else version.table.id

    def ddl_events(self, scope: Scope, window: Window) -> Ddls:
        with self._lock:
            found = self._history().ddl_events(window.low, window.high, scope.database, scope.table)
        return Ddls(tuple(found))

    def rows(self, group: GroupRef) -> pa.Table:
        return self._cache.rows(group)

    def index(self, group: GroupRef) -> GroupIndex:
        return self._cache.index(group)

    def statistics(self, group: GroupRef) -> GroupStatistics:
        return self._cache.statistics(group)

    def shared(self, key: Hashable, high: int, make: Callable[[Alive], DerivedResult[T]], alive: Alive) -> T:
        with self._lock:
            history, mine = self._named_history()

        def made(alive: Alive) -> SharedResult:
            worked = make(alive)
            with self._lock:
                stands = self._history_now() is history and high <= history.resolved_ts
            return SharedResult(worked.value, worked.size if stands else None, self._cache.until_ms(worked.of))

        return cast(T, self._cache.work.get((mine, key), made, alive))

    def _named_history(self) -> tuple[History, object]:
        """The history, and an object that stands for it in keys. The caller holds the lock."""
        history = self._history()
        if history is not self._worked_of:  # the history was read again, and may differ
            self._worked_of, self._mine = history, object()
        return history, self._mine

    def steady_key(self, ts: int) -> Hashable:
        """A key for caches of what depends on the schema at `ts`. Two calls return equal keys only if the history was
        not read again between them, and no table changed between their two ts."""
        with self._lock:
            history, mine = self._named_history()
            return mine, history.steady_since(ts, ts)

    def name_exists(self, scope: Scope, low: int, high: int) -> bool:
        """Whether any table or database has the scope's name at any time from `low` to `high`, both inclusive."""
        if scope.database is None:
            return True
        until = min(high + 1, MAX_TS)  # the history returns the schema strictly before a ts
        with self._lock:
            history = self._history()
            if scope.table is None:
                return history.database_exists(scope.database, low, until)
            return bool(history.tables_named(scope.database, scope.table, low, until))

    def databases(self, ts: int) -> list[str]:
        """The names of the databases visible at `ts`, which must not be above the history's resolved_ts."""
        with self._lock:
            return self._history().databases(ts)

    def tables(self, ts: int, database: str) -> list[ListedTable] | None:
        """The base tables of a database visible at `ts`; None if the database does not exist then."""
        with self._lock:
            return self._history().tables(ts, database)

    def table(self, ts: int, database: str, table: str) -> TableVersion | None:
        """The table, view or sequence that has the name at `ts`; None if it does not exist."""
        name = (fold(database), fold(table))
        with self._lock:
            found = self._history().visible_tables(ts, database)
            return next((version for version in found if version.folded == name), None)

    def table_of(self, physical_ids: Iterable[int], table_id: int, ts: int) -> TableVersion | None:
        """The version at `ts` of the table with this logical id. None unless the table has one of the physical ids at
        that time."""
        with self._lock:
            history = self._history()
            found = (history.table_at(one, ts + 1) for one in physical_ids)
            return next((one for one in found if one is not None and one.head.id == table_id), None)

    def tables_named(self, scope: Scope, window: Window) -> list[NamedInterval]:
        """The tables that have the scope's name at any ts of the window, with their physical ids. The scope must name a
        database."""
        assert scope.database is not None
        with self._lock:
            return self._history().tables_named(scope.database, scope.table, window.low, window.high)

    def tables_at(self, ts: int, scope: Scope) -> list[TableVersion]:
        """The base tables of the scope that are visible at `ts`, in order of their logical ids."""
        with self._lock:
            history = self._history()
            databases = history.databases(ts) if scope.database is None else [scope.database]
            found = [version for database in databases for version in history.visible_tables(ts, database)]
        if scope.table is not None:
            found = [version for version in found if version.folded[1] == fold(scope.table)]
        return sorted((one for one in found if one.head.kind == "table"), key=lambda one: one.head.id)

    def tables_within(self, window: Window, scope: Scope) -> list[TableVersion]:
        """Every version of a base table of the scope with which rows of the window are decoded."""
        wanted = (
            None if scope.database is None else fold(scope.database),
            None if scope.table is None else fold(scope.table),
        )
        with self._lock:
            found = list(self._history().versions_within(window.low, window.high))
        return [
            one
            for one in found
            if one.head.kind == "table"
            and all(name in (None, own) for name, own in zip(wanted, one.folded, strict=True))
        ]

    def older_than(self, physical_ids: Iterable[int], begins_ts: int) -> bool:
        """Whether any of these ids may have had rows at `begins_ts` or at the tenant's snapshot, because its table or
        partition existed then, or had been dropped and has come back since. If the history of that time was dropped,
        the ids are compared with the highest id of the snapshot, because TiDB assigns ids in ascending order."""
        with self._lock:
            history = self._history()
            dropped = history.base_ts > history.snapshot_ts >= begins_ts
        highest = self._snapshot_id() if dropped else None
        if highest is not None:
            return any(one <= highest for one in physical_ids)
        with self._lock:
            return any(history.had_rows(one, max(begins_ts, history.snapshot_ts)) for one in physical_ids)

    def imports(self, physical_ids: Iterable[int]) -> dict[int, ImportPeriod]:
        """The last import into each of these physical ids that has had one."""
        with self._lock:
            return self._history().imports(physical_ids)

    def imports_of(self, scope: Scope, window: Window) -> dict[int, ImportPeriod]:
        """The last import into each physical id that belongs to the scope in the window and has had an import. If the
        scope is the whole tenant, or tables that rules choose, the ids are those that exist now."""
        with self._lock:
            history = self._history()
            if isinstance(scope, ChosenScope):
                every = history.imports()
                shown = {one: history.versions_of(one, window.low, window.high) for one in every}
                return {
                    one: found
                    for one, found in every.items()
                    if any(version is not None and scope.shows(version) for _, _, version in shown[one])
                }
            if scope.database is None:
                return history.imports()
            tables = history.tables_named(scope.database, scope.table, window.low, window.high)
            return history.imports({one for table in tables for one in table.physical_ids})

    def name_now(self, physical_id: int) -> str:
        """The name `database.table` of the table that has the physical id now; the id as text if no table has it."""
        with self._lock:
            version = self._history().table_at(physical_id, MAX_TS)
        return str(physical_id) if version is None else ".".join(version.name)

    def schema_version(self, ts: int) -> int:
        """The schema version that is in force at `ts`."""
        with self._lock:
            return self._history().schema_version_at(ts)


def _shown(history: History, scope: Scope, physical_id: int, window: Window) -> list[Interval]:
    return [
        Interval(low, high, version if version is not None and _within(scope, version) else None)
        for low, high, version in history.versions_of(physical_id, window.low, window.high)
    ]


def _within(scope: Scope, version: TableVersion) -> bool:
    if isinstance(scope, ChosenScope):
        return scope.shows(version)
    if scope.database is None:
        return True
    database, table = version.folded
    return database == fold(scope.database) and (scope.table is None or table == fold(scope.table))
