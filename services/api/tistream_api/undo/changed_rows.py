"""Collects the row events of the transactions to undo, in the form of tistream.restore.undo_plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tistream.decode.handle_bytes import ROWID
from tistream.errors import InvalidRequest
from tistream.read.events import Events, Rows
from tistream.restore.undo_plan import Change
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.undo import row_cells

ROWS_MAX = 100_000
BYTES_MAX = 32 << 20  # of the events as JSON; in memory they take a few times more

Place = tuple[int, str]
"""A row of a table: (logical table id, row_cells.identity)."""


@dataclass(slots=True)
class ChangedRow:
    """One row that the chosen transactions changed: the table version and the key (by column id) of its first event.
    `raw` is an ordered set: the raw keys of all its events."""

    version: TableVersion
    key: Mapping[int, Any]
    raw: dict[bytes, None] = field(default_factory=dict)


@dataclass(slots=True)
class ChangedRows:
    """Collects the changes of the chosen transactions, and the rows that they changed. `where` selects rows: it maps
    columns to values in the form of events; None selects every row."""

    where: Mapping[str, Any] | None = None
    changes: list[Change] = field(default_factory=list)
    rows: dict[Place, ChangedRow] = field(default_factory=dict)
    columns: dict[int, dict[int, Column]] = field(default_factory=dict)  # by table id and column id, as of the events
    _chosen: set[Place] = field(default_factory=set)
    _bytes: int = 0

    def add(self, events: Events) -> None:
        """Add row events. Raises InvalidRequest above ROWS_MAX or BYTES_MAX."""
        if len(self.changes) + len(events) > ROWS_MAX:
            raise _too_large()
        pieces = b"".join(NdjsonEncoder().events(events))
        self._bytes += len(pieces)
        if self._bytes > BYTES_MAX:
            raise _too_large()
        places = zip(events.source.tolist(), events.at.tolist(), pieces.splitlines(), strict=True)
        for source, at, line in places:
            rows = events.sets[source]
            assert isinstance(rows, Rows)  # the caller has chosen row events
            self._add(rows.version, rows.raw[at].as_py(), orjson.loads(line))

    def choose(self) -> None:
        """Drop each row of which no change matches `where`. A row that stays keeps all of its changes, because an undo
        of only some of them would give it a state that it never had. Raises InvalidRequest for a column that none of
        the changed tables has."""
        if self.where is None:
            return
        known = {ROWID, *(column.name for columns in self.columns.values() for column in columns.values())}
        unknown = [name for name in self.where if name not in known]
        if unknown and self.rows:
            raise InvalidRequest(
                f"where: none of the changed tables has a column {unknown[0][:80]!r}: their columns are "
                f"{', '.join(sorted(known))[:400]}",
                {"parameter": "where"},
            )
        self.changes = [one for one in self.changes if (one.table_id, one.row) in self._chosen]
        self.rows = {place: row for place, row in self.rows.items() if place in self._chosen}

    def in_order(self) -> list[Change]:
        """The changes by (commit_ts, start_ts), deletes before puts."""
        return sorted(self.changes, key=lambda one: (one.commit_ts, one.start_ts, one.after is not None))

    def by_table(self) -> dict[int, dict[str, ChangedRow]]:
        """The changed rows by table id, and in each table by identity (row_cells.identity)."""
        found: dict[int, dict[str, ChangedRow]] = {}
        for (table_id, name), row in self.rows.items():
            found.setdefault(table_id, {})[name] = row
        return found

    def _add(self, version: TableVersion, raw: bytes, event: Mapping[str, Any]) -> None:
        table = version.table
        columns = table.visible_columns
        row = row_cells.identity(table, event["key"])
        place = (table.id, row)
        if self.where is not None and _matches(self.where, event):
            self._chosen.add(place)
        if place not in self.rows:
            self.rows[place] = ChangedRow(version, row_cells.key_cells(table, event["key"]))
        self.rows[place].raw[raw] = None
        self.columns.setdefault(table.id, {}).update((column.id, column) for column in (*columns, *table.key_columns))
        before, after = (
            None if event[name] is None else row_cells.cells_of(columns, event[name]) for name in ("old_row", "row")
        )
        self.changes.append(Change(*place, int(event["commit_ts"]), int(event["start_ts"]), before, after))


def _matches(where: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether the row before the event, or the row after it, has all values of `where`. The key counts as part of both
    rows."""
    states = ({**event[name], **event["key"]} for name in ("old_row", "row") if event[name] is not None)
    return any(all(name in state and _equal(state[name], one) for name, one in where.items()) for state in states)


def _equal(found: Any, wanted: Any) -> bool:
    """Whether two values of events are equal. An integer may be given as text, as events show those of BIGINT
    columns."""
    if isinstance(found, int) and isinstance(wanted, str):
        return str(found) == wanted
    if isinstance(found, str) and isinstance(wanted, int):
        return found == str(wanted)
    return bool(found == wanted)


def _too_large() -> InvalidRequest:
    return InvalidRequest(
        f"the undo has more than {ROWS_MAX} changed rows, or more than {BYTES_MAX >> 20} MiB of them: name fewer "
        "transactions, a shorter window, or single tables; or restore the tables instead",
        {"parameter": "tables"},
    )
