"""Builds the answer of UndoTransactions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tistream.errors import InvalidRequest
from tistream.restore.undo_plan import Conflict, CurrentRow, Reversal, UndoPlan, plan_undo
from tistream.restore.undo_sql import Target, statement
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_api.undo import row_cells
from tistream_api.undo.changed_rows import ChangedRows, Place


@dataclass(frozen=True, slots=True)
class UndoAnswer:
    """Builds one answer of UndoTransactions, as of `ts`, from the changes, the tables that still exist, by id, and the
    present state of the changed rows (`standing`)."""

    ts: int
    changed: ChangedRows
    tables: Mapping[int, TableVersion]
    standing: Mapping[Place, CurrentRow]

    def answer(self, dialect: Dialect | None, into_database: str | None) -> dict[str, Any]:
        """The answer as JSON. If `dialect` is None, it has no SQL statements. Raises InvalidRequest if `into_database`
        would hold tables of several databases, or if a value cannot be written as SQL."""
        columns = {one: frozenset(c.id for c in table.table.visible_columns) for one, table in self.tables.items()}
        plan = plan_undo(self.changed.in_order(), self.standing, columns)
        found: dict[str, Any] = {"ts": str(self.ts)}
        if dialect is not None:
            found["statements"] = self._statements(plan.reversals, dialect, into_database)
        return {
            **found,
            "counts": _counts(plan),
            "conflicts": [self._conflict(one) for one in plan.conflicts],
            "dropped": [self._dropped(one) for one in plan.reversals if one.dropped],
        }

    def _statements(
        self, reversals: Sequence[Reversal], dialect: Dialect, into_database: str | None
    ) -> list[dict[str, Any]]:
        databases = sorted({self.tables[one.table_id].database for one in reversals})
        if into_database is not None and len(databases) > 1:
            raise InvalidRequest(
                f"into_database: the undo is about tables of {', '.join(databases)}, which are not in one database: "
                "leave it out, or name tables of one of them",
                {"parameter": "into_database"},
            )
        targets = {one.table_id: self._target(one.table_id, into_database) for one in reversals}
        return [self._statement(one, targets[one.table_id], dialect) for one in reversals]

    def _statement(self, reversal: Reversal, target: Target, dialect: Dialect) -> dict[str, Any]:
        try:
            sql = statement(reversal, target, dialect)
        except ValueError as error:
            name = ".".join(self.tables[reversal.table_id].name)
            raise InvalidRequest(f"table {name}: {error}; leave it out with tables", {"parameter": "tables"}) from error
        return {**self._named(reversal), "op": _op(reversal), "sql": sql}

    def _target(self, table_id: int, into_database: str | None) -> Target:
        version = self.tables[table_id]
        columns = {column.id: column for column in version.table.visible_columns}
        key = tuple(column.id for column in version.table.key_columns)
        known = key if set(key) <= columns.keys() else ()
        return Target((into_database or version.database, version.head.name), columns, known)

    def _conflict(self, conflict: Conflict) -> dict[str, Any]:
        columns = self._columns(conflict.table_id)
        start_ts, commit_ts = conflict.by
        return {
            **self._named(conflict),
            "reason": conflict.reason.value,
            "left": row_cells.shown_row(conflict.left, columns),
            "now": row_cells.shown_row(conflict.now, columns),
            "by": {"start_ts": str(start_ts), "commit_ts": str(commit_ts)} if commit_ts else None,
        }

    def _dropped(self, reversal: Reversal) -> dict[str, Any]:
        values = row_cells.shown_row(reversal.dropped, self._columns(reversal.table_id))
        return {**self._named(reversal), "values": values}

    def _columns(self, table_id: int) -> dict[int, Column]:
        """Every column that the table has now or had in the changed events, by column id, in its newest definition."""
        now = self.tables.get(table_id)
        newest = {} if now is None else {column.id: column for column in now.table.visible_columns}
        return {**self.changed.columns[table_id], **newest}

    def _named(self, one: Reversal | Conflict) -> dict[str, Any]:
        """The database, the table and the key of a row. Column names of the key are the present ones, or those of the
        row's first event if the table no longer exists or its key has other columns."""
        row = self.changed.rows[one.table_id, one.row]
        version = self.tables.get(one.table_id, row.version)
        same = row_cells.same_key_columns((row.version.table, version.table))
        key = row_cells.shown_key(version.table if same else row.version.table, row.key)
        return {"database": version.database, "table": version.head.name, "key": key}


def _op(reversal: Reversal) -> str:
    if reversal.now is None:
        return "insert"
    return "delete" if reversal.then is None else "update"


def _counts(plan: UndoPlan) -> dict[str, int]:
    ops = [_op(one) for one in plan.reversals]
    counts = {name: ops.count(name) for name in ("insert", "update", "delete")}
    return {**counts, "unchanged": plan.unchanged, "conflicts": len(plan.conflicts)}
