"""The state of the schema after all records so far, including databases and tables that are not visible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tistream.schema.id_set import IdSet
from tistream.schema.records import (
    BaseState,
    DatabaseChange,
    JobChange,
    Record,
    RestoredTables,
    TableChange,
    VersionChange,
)
from tistream.schema.tidb.table import STATE_PUBLIC
from tistream.schema.visible import Database, Name, StoredTable, TableVersion, named_ids


@dataclass(slots=True)
class ChangedIds:
    """The ids of the databases, tables and jobs, and the schema versions, that the records of one transaction change.
    `restored`: the restores by BR that they name. `base`: the state that begins a history, if it is among these
    records."""

    tables: set[int] = field(default_factory=set)
    databases: set[int] = field(default_factory=set)
    versions: list[int] = field(default_factory=list)
    jobs: list[JobChange] = field(default_factory=list)
    restored: list[RestoredTables] = field(default_factory=list)
    base: BaseState | None = None


class CurrentSchema:
    """The present databases and tables, by id. A table that moves to another database keeps its id."""

    def __init__(self) -> None:
        self._databases: dict[int, Database] = {}
        self._tables: dict[int, dict[int, StoredTable]] = {}  # table id -> database id -> table
        self._tables_of: dict[int, set[int]] = {}  # database id -> table ids
        self._known_ids = IdSet()

    def apply(self, records: Iterable[Record]) -> ChangedIds:
        """Apply the records of one transaction. Returns what they change; a changed database changes all of its
        tables."""
        touched = ChangedIds()
        for record in records:
            change = record.change
            match change:
                case DatabaseChange():
                    touched.databases.add(change.database_id)
                    touched.tables |= self._tables_of.get(change.database_id, set())
                    self._apply_database(change)
                case TableChange():
                    touched.tables.add(change.table_id)
                    self._apply_table(change)
                case VersionChange():
                    touched.versions.append(change.version)
                case JobChange():
                    touched.jobs.append(change)
                case RestoredTables():
                    touched.restored.append(change)
                case BaseState():
                    self._known_ids.update(change.named)
                    touched.base = change
        for database_id in touched.databases:
            touched.tables |= self._tables_of.get(database_id, set())
        return touched

    def visible_database(self, database_id: int) -> Database | None:
        """The present version of a database; None if no database has the id, or its state is not public."""
        database = self._databases.get(database_id)
        return database if database is not None and database.visible else None

    def visible_table(self, table_id: int) -> TableVersion | None:
        """The present version of a table; None if no table has the id, or if its state or that of its database is not
        public, so that SELECT does not show it."""
        for database_id, stored in self._tables.get(table_id, {}).items():
            database = self.visible_database(database_id)
            if stored.head.public and database is not None:
                return TableVersion(database_id, database.name, stored)
        return None

    def database_name(self, database_id: int) -> str | None:
        """The name of a database, visible or not; None if no database has the id."""
        database = self._databases.get(database_id)
        return None if database is None else database.name

    def table_name(self, table_id: int) -> Name | None:
        """The (database, table) name of a table, visible or not; None if no table has the id."""
        for database_id, stored in self._tables.get(table_id, {}).items():
            return self.database_name(database_id) or "", stored.head.name
        return None

    def ever_had_id(self, physical_id: int) -> bool:
        """Whether any TableInfo that was ever applied contained the id."""
        return physical_id in self._known_ids

    def known_ids(self) -> tuple[int, ...]:
        """Every id for which `ever_had_id` is true, in ascending order."""
        return tuple(self._known_ids)

    def _apply_database(self, change: DatabaseChange) -> None:
        if change.info is None:
            self._databases.pop(change.database_id, None)
            return
        public = change.info.get("state", STATE_PUBLIC) == STATE_PUBLIC
        self._databases[change.database_id] = Database(change.database_id, change.info["db_name"]["O"], public)

    def _apply_table(self, change: TableChange) -> None:
        places = self._tables.setdefault(change.table_id, {})
        # The newest place of the table must be the last entry.
        places.pop(change.database_id, None)
        if change.text is not None:
            info = change.text.info()
            places[change.database_id] = StoredTable(change.text, info)
            self._tables_of.setdefault(change.database_id, set()).add(change.table_id)
            self._known_ids.update(named_ids(info))
            return
        self._tables_of.get(change.database_id, set()).discard(change.table_id)
        if not places:
            del self._tables[change.table_id]
