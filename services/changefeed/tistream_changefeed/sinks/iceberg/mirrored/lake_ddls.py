"""Applies the DDLs of a feed to its Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.manifest import DataFile

from tistream.model.ts import Window
from tistream.read.cursor import Position
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.hold.sink import RowsOf
from tistream_changefeed.rows.net import net
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.iceberg.kept.lake_table import (
    DELTA,
    DROPPED,
    MADE,
    NEXT,
    SINCE,
    SOURCE,
    TABLE_ID,
    LakeTable,
)
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_pipeline import TableDdl
from tistream_changefeed.sinks.iceberg.lake_rows import by_hour, table_rows, truncate_row
from tistream_changefeed.sinks.iceberg.lake_tables import LakeTables
from tistream_changefeed.sinks.iceberg.mirrored.deltas import Deltas
from tistream_changefeed.sinks.iceberg.mirrored.mirrored_rows import MirroredRows
from tistream_changefeed.sinks.iceberg.table_schema import LakeSchema, Shape, changes_type, evolved
from tistream_changefeed.sinks.iceberg.target import Identifier, LakeTarget, delta_of, number_of, version_of

_TRUNCATE = "truncate table"
_ROWS_MOVE = frozenset({"drop partition", "truncate partition", "exchange partition", "recover table"})


class LakeDdls:
    """Applies DDLs. `rows_of` reads rows of tables again, for the new version of a table; None: they cannot be read.
    Every call may raise FeedFailed, and `apply` what `rows_of` raises."""

    def __init__(self, lake: Lake, tables: LakeTables, rows: MirroredRows, deltas: Deltas, target: LakeTarget) -> None:
        self._lake, self._tables, self._rows, self._deltas, self._target = lake, tables, rows, deltas, target
        self.rows_of: RowsOf | None = None

    def touched(self, mark: TableDdl) -> list[Identifier]:
        """The names of the Iceberg tables that a DDL may rename or commit to, including names used while it renames.
        Some of them may not exist."""
        found: dict[Identifier, None] = {}
        for shape in self._target.shapes:
            for change in mark.changes:
                for name in change.names:
                    first = self._target.identifier(name, shape)
                    found[first] = None
                    if shape == "table":
                        newest = number_of(first, self._tables.newest(name, shape))
                        found |= dict.fromkeys(version_of(first, number) for number in range(2, newest + 2))
                if change.after is not None:
                    found[self._between(change.after, shape)] = None
        for one in list(found) if "table" in self._target.shapes else ():
            found[delta_of(one)] = None
        return list(found)

    def _between(self, after: TableVersion, shape: Shape) -> Identifier:
        """The name of a table while its name is changed to that of `after`: two tables may swap their names."""
        goal = self._target.identifier(after.name, shape)
        return (*goal[:-1], f"{goal[-1]}__renamed_{after.head.id}")

    def apply(self, mark: TableDdl) -> None:
        """Apply a DDL. All rows before it must be committed. Idempotent, so it can be repeated after a crash."""
        self._tables.created.moving = self.touched(mark)
        for shape in self._target.shapes:
            if shape == "table" and mark.event.action in _ROWS_MOVE:
                raise failed("ddl", f"{mark.event.database}.{mark.event.table}", f"{mark.event.action} at commit_ts "
                             f"{mark.event.commit_ts}: rows come or go without events; leave the table out by "
                             "filter.rules, or set mode=changelog")  # fmt: skip
            settles = shape == "table" and mark.event.action != _TRUNCATE
            for change in mark.changes if settles else ():
                if change.before is not None:
                    self._deltas.settle(change.before, mark.event.commit_ts)
            self._rename(mark, shape)
            for change in mark.changes:
                if change.after is not None and change.after.head.kind == "table":
                    self._changed(mark, shape, change.before, change.after)
                elif change.before is not None and change.before.head.kind == "table":
                    self._dropped(mark, shape, change.before)
        self._tables.created.moving = ()

    def _rename(self, mark: TableDdl, shape: Shape) -> None:
        """Rename the Iceberg tables of this shape whose tables a DDL renames. Each first gets a temporary name, because
        two tables may swap their names. Of a table with several versions, the newest gets the new name, and the others
        are set aside."""
        tables = self._tables
        moved = [one for one in mark.changes if one.before and one.after and one.before.name != one.after.name]
        between: list[tuple[Identifier, Identifier, TableVersion]] = []
        for one in moved:
            assert one.before is not None
            assert one.after is not None
            source, goal = tables.newest(one.before.name, shape), self._target.identifier(one.after.name, shape)
            middle = self._between(one.after, shape)
            found = tables.loaded(source, shape)
            if found is not None and found.table_id == one.before.head.id and source != goal:
                self._deltas.move(found, middle, one.after)
                tables.move(found, middle)
            between.append((middle, goal, one.after))
        for middle, goal, after in between:
            found = tables.loaded(middle, shape)
            if found is None:
                continue
            other = tables.loaded(goal, shape)
            if other is not None:
                tables.set_aside(other, after)
            self._deltas.move(found, goal, after)
            tables.move(found, goal)
        for one in moved:
            assert one.before is not None
            self._set_replaced_aside(one.before, shape)

    def _set_replaced_aside(self, before: TableVersion, shape: Shape) -> None:
        """Rename the versions of a table that newer ones have replaced, because the table has another name now."""
        first = self._target.identifier(before.name, shape)
        for number in range(1, number_of(first, self._tables.newest(before.name, shape)) + 1):
            found = self._tables.loaded(version_of(first, number), shape)
            if found is not None and NEXT in found.table.properties:
                self._tables.set_aside(found, before)

    def _changed(self, mark: TableDdl, shape: Shape, before: TableVersion | None, after: TableVersion) -> None:
        event, tables = mark.event, self._tables
        found = tables.loaded(tables.newest(after.name, shape), shape)
        if found is not None and before is None and found.table_id != after.head.id:
            tables.set_aside_all(after, shape)
        elif found is not None and shape == "table" and self._needs_version(found, event, before, after):
            self._new_version(found, event, before, after)
            return
        table = tables.table(after, shape, before, event.commit_ts)
        if table.through_ts < event.commit_ts or table.evolves:
            self._commit(table, event, after)
        if shape == "table":
            self._deltas.follow(table, before, after, event)

    def _commit(self, table: LakeTable, event: DdlEvent, after: TableVersion) -> None:
        """Commit to a table what a DDL changes in it."""
        tables, shape = self._tables, table.shape
        removed: list[DataFile] = []
        if event.action == _TRUNCATE and shape == "table":
            removed = self._lake.files(table.table)
        elif event.action == _TRUNCATE:
            row = truncate_row(table.schema, event.commit_ts, event.start_ts, event.schema_version)
            for hour, rows in by_hour(row):
                tables.write(table, rows, hour)
        elif shape == "table":
            removed = self._rows.filled(table)
        known = {SOURCE: ".".join(after.name), TABLE_ID: str(after.head.id)}
        if table.table.properties.get(DELTA):
            known[DELTA] = delta_of(table.identifier)[-1]
        if table.evolves or removed or table.files or not known.items() <= table.table.properties.items():
            tables.commit(table, Position(event.commit_ts), removed, known)

    def _dropped(self, mark: TableDdl, shape: Shape, before: TableVersion) -> None:
        found = self._tables.loaded(self._tables.newest(before.name, shape), shape)
        ts = mark.event.commit_ts
        if found is not None and found.table_id == before.head.id and shape == "table":
            self._deltas.dropped(found, str(ts))
        if found is not None and found.table_id == before.head.id and DROPPED not in found.table.properties:
            self._tables.commit(found, Position(ts), (), {DROPPED: str(ts)})
            self._tables.created.known.forget(str(found.table.metadata.table_uuid))

    # ---- versions

    def _needs_version(
        self, found: LakeTable, event: DdlEvent, before: TableVersion | None, after: TableVersion
    ) -> bool:
        """Whether a DDL begins a new version of a table. `found`: its newest version; it may be that new version
        already, if an earlier worker has created it."""
        if found.table.properties.get(MADE) == str(event.commit_ts):
            return True
        if found.through_ts >= event.commit_ts or DROPPED in found.table.properties or self.rows_of is None:
            return False
        return changes_type(found.schema, after, before)

    def _new_version(self, found: LakeTable, event: DdlEvent, before: TableVersion | None, after: TableVersion) -> None:
        """Write the rows of a table, as they are after a DDL, into a new version of its Iceberg table. Then mark the
        version that it replaces. After a crash the first step that is not committed is done again."""
        tables, ts = self._tables, str(event.commit_ts)
        first = self._target.identifier(after.name, "table")
        made = found.table.properties.get(MADE) == ts
        number = number_of(first, found.identifier) + (0 if made else 1)
        old, new = (tables.loaded(version_of(first, one), "table") for one in (number - 1, number))
        if new is not None and DROPPED in new.table.properties:
            tables.set_aside(new, after)
            new = None
        if new is None:
            assert old is not None
            kept = {SINCE: old.table.properties.get(SINCE, "0"), MADE: ts}
            new = tables.new_table(version_of(first, number), after, "table", kept)
        tables.check_source(new, after, before)
        if new.through_ts < event.commit_ts:
            new.schema, new.evolves = evolved(LakeSchema(new.schema.schema, {}), "table", after), True
            window = Window(int(new.table.properties[SINCE]), event.commit_ts)
            for rows in self._rows_again(new, after, window):
                tables.write(new, rows, None)
            tables.commit(new, Position(event.commit_ts), self._lake.files(new.table))
        if old is not None and NEXT not in old.table.properties:
            known = {NEXT: new.identifier[-1], DROPPED: ts}
            if old.table.properties.get(DELTA):
                self._deltas.retire(old)
            at = Position(event.commit_ts) if old.marks is None else old.marks.at
            tables.commit(old, at, (), known, tag=f"v{number - 1}")
            tables.created.known.forget(str(old.table.metadata.table_uuid))

    def _rows_again(self, table: LakeTable, version: TableVersion, window: Window) -> Iterator[pa.Table]:
        """Yield the rows of a table of TiDB as of the end of a window, of those that have changed in the window, sorted
        by key in parts of the size of a file."""
        assert self.rows_of is not None
        held: list[pa.Table] = []
        keys: list[str] = []
        for events in self.rows_of(version, window):
            assert isinstance(events, RowEvents)
            for one in net(EventWindow(events.window.rows, ())):
                keys = [column.name for column in one.handle]
                held.append(table_rows(one.columns, one.inserts, table.schema))
            if sum(rows.nbytes for rows in held) >= self._target.file_bytes:
                yield _by_key(held, keys)
                held = []
        if held:
            yield _by_key(held, keys)


def _by_key(parts: list[pa.Table], keys: list[str]) -> pa.Table:
    return pa.concat_tables(parts).sort_by([(key, "ascending") for key in keys])
