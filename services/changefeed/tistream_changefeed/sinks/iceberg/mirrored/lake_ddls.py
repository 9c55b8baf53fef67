"""Applies the DDLs of a feed to its Iceberg tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile

from tistream.model.ts import Window
from tistream.read.cursor import Position
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.hold.sink import RowsOf
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.net import TableNet, net
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
from tistream_changefeed.sinks.iceberg.kept.table_versions import next_number
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_pipeline import TableDdl
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema, by_hour, inserted_keys, table_rows, truncate_row
from tistream_changefeed.sinks.iceberg.lake_tables import LakeTables
from tistream_changefeed.sinks.iceberg.mirrored.deltas import Deltas
from tistream_changefeed.sinks.iceberg.mirrored.mirrored_rows import MirroredRows
from tistream_changefeed.sinks.iceberg.mirrored.moved_partitions import MovedIds, moved_ids
from tistream_changefeed.sinks.iceberg.table_schema import LakeSchema, Shape, changes_type, evolved
from tistream_changefeed.sinks.iceberg.target import Identifier, LakeTarget, delta_of, number_of, version_of
from tistream_changefeed.table_errors.tables_refused import TablesRefused

_TRUNCATE = "truncate table"
_RECOVER = "recover table"


class LakeDdls:
    """Applies DDLs. `rows_of` reads rows of tables again, for the new version of a table, or of partitions that come or
    go; None: they cannot be read. Every call may raise FeedFailed and TablesRefused, and `apply` what `rows_of`
    raises."""

    def __init__(self, lake: Lake, tables: LakeTables, rows: MirroredRows, deltas: Deltas, target: LakeTarget) -> None:
        self._lake, self._tables, self._rows, self._deltas, self._target = lake, tables, rows, deltas, target
        self.rows_of: RowsOf | None = None

    def check(self, mark: TableDdl) -> None:
        """Raise TablesRefused if a DDL cannot be applied: no rows say what it does, or a table would get the name of an
        Iceberg table that has other rows. Nothing is changed."""
        event, sources = mark.event, {".".join(name) for name in mark.names}
        if event.action == _RECOVER and "table" in self._target.shapes:
            raise TablesRefused(
                mark.names,
                f"table {event.database}.{event.table}: recover table at commit_ts {event.commit_ts}: rows come back "
                "without events: leave the table out by filter.rules, or set mode=changelog",
                of_ddl=True,
            )
        for shape in self._target.shapes:
            for after in (one.after for one in mark.changes):
                if after is None or after.head.kind != "table":
                    continue
                found = self._tables.loaded(self._target.identifier(after.name, shape), shape)
                if found is not None and DROPPED not in found.table.properties:
                    try:
                        self._tables.check_owner(found, after, sources)
                    except TablesRefused as error:
                        raise TablesRefused(mark.names, str(error), of_ddl=True) from error

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
                        known = [number_of(first, one) for _, one in self._tables.created.known]
                        newest = max([number_of(first, self._tables.newest(name, shape)), *known])
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
                if shape == "table":
                    self._deltas.make_way(found, goal, one.after)
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
            mine = found is not None and found.table.properties.get(SOURCE) == ".".join(before.name)
            if found is not None and mine and NEXT in found.table.properties:
                self._tables.set_aside(found, before)

    def _changed(self, mark: TableDdl, shape: Shape, before: TableVersion | None, after: TableVersion) -> None:
        event, tables = mark.event, self._tables
        found = tables.loaded(tables.newest(after.name, shape), shape)
        if found is not None and before is None and found.table_id != after.head.id:
            tables.set_aside_all(after, shape)
        elif found is not None and shape == "table" and self._needs_version(found, event, before, after):
            self._new_version(found, event, before, after)
            return
        table = tables.table(after, shape, before, event.commit_ts, event.query)
        if table.through_ts < event.commit_ts or table.evolves:
            self._commit(table, event, before, after)
        if shape == "table":
            self._deltas.follow(table, before, after, event)

    def _commit(self, table: LakeTable, event: DdlEvent, before: TableVersion | None, after: TableVersion) -> None:
        """Commit to a table what a DDL changes in it."""
        tables, shape = self._tables, table.shape
        removed: list[DataFile] = []
        known = {SOURCE: ".".join(after.name), TABLE_ID: str(after.head.id)}
        moved = moved_ids(event.action, before, after) if table.through_ts < event.commit_ts else None
        if moved is not None and before is not None and shape == "table":
            removed = self._partitions(table, moved, event, before, after)
            if moved.come and SINCE in table.table.properties:
                known[SINCE] = str(min(tables.begun_ts, int(table.table.properties[SINCE])))
        elif event.action == _TRUNCATE and shape == "table":
            removed = self._lake.files(table.table)
        elif event.action == _TRUNCATE:
            row = truncate_row(table.schema, event.commit_ts, event.start_ts, event.schema_version)
            for hour, rows in by_hour(row):
                tables.write(table, rows, hour)
        elif shape == "table":
            removed = self._rows.filled(table)
        if table.table.properties.get(DELTA):
            known[DELTA] = delta_of(table.identifier)[-1]
        if table.evolves or removed or table.files or not known.items() <= table.table.properties.items():
            tables.commit(table, Position(event.commit_ts), removed, known)

    def _partitions(
        self, table: LakeTable, moved: MovedIds, event: DdlEvent, before: TableVersion, after: TableVersion
    ) -> list[DataFile]:
        """Write the rows of a table as they are after a DDL that moves physical ids with their rows. Returns the files
        that the commit removes."""
        window = Window(self._tables.begun_ts, event.commit_ts)
        removed = self._lake.files(table.table)
        if removed and not moved.whole:
            keys = [column.name for column in handle_columns(after.table)]
            gone = [inserted_keys(one) for part in self._nets(before, window, moved.gone, gone=True) for one in part]
            none = arrow_schema(table.schema.schema).empty_table()
            removed = self._rows.write(table, keys, [pa.concat_tables(gone)] if gone else [], none, removed)
        for rows in self._rows_again(table, after, window, moved.come):
            self._tables.write(table, rows, None)
        return removed

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
        return changes_type(found.schema, after, before, event.query)

    def _new_version(self, found: LakeTable, event: DdlEvent, before: TableVersion | None, after: TableVersion) -> None:
        """Write the rows of a table, as they are after a DDL, into a new version of its Iceberg table. Then mark the
        version that it replaces. After a crash the first step that is not committed is done again."""
        tables, ts = self._tables, str(event.commit_ts)
        first = self._target.identifier(after.name, "table")
        sources = {".".join(one.name) for one in (before, after) if one is not None}
        there = number_of(first, found.identifier)
        if found.table.properties.get(MADE) == ts:
            number, last = there, self._last(first, there, sources)
        else:
            number, last = next_number(first, there, sources, lambda one: tables.loaded(one, "table")), there
        old, new = (tables.loaded(version_of(first, one), "table") if one else None for one in (last, number))
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
            tables.commit(old, at, (), known, tag=f"v{last}")
            tables.created.known.forget(str(old.table.metadata.table_uuid))

    def _last(self, first: Identifier, number: int, sources: Collection[str]) -> int:
        """The number of the version before the version `number` of a table; 0 if it was dropped."""
        for one in range(number - 1, 0, -1):
            found = self._tables.loaded(version_of(first, one), "table")
            if found is not None and found.table.properties.get(SOURCE) in sources:
                return one
        return 0

    def _nets(
        self, version: TableVersion, window: Window, ids: Sequence[int] | None, *, gone: bool = False
    ) -> Iterator[Sequence[TableNet]]:
        """Read rows of a table of TiDB again, as RowsOf says, in parts."""
        assert self.rows_of is not None
        for events in self.rows_of(version, window, ids, gone=gone) if ids is None or ids else ():
            assert isinstance(events, RowEvents)
            yield net(EventWindow(events.window.rows, ()))

    def _rows_again(
        self, table: LakeTable, version: TableVersion, window: Window, ids: Sequence[int] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of a table of TiDB as of the end of a window, of those that have changed in the window, sorted
        by key in parts of the size of a file. `ids`: only those of these physical ids; None: of all."""
        held: list[pa.Table] = []
        keys: list[str] = []
        for nets in self._nets(version, window, ids):
            for one in nets:
                keys = [column.name for column in one.handle]
                held.append(table_rows(one.columns, one.inserts, table.schema))
            if sum(rows.nbytes for rows in held) >= self._target.file_bytes:
                yield _by_key(held, keys)
                held = []
        if held:
            yield _by_key(held, keys)


def _by_key(parts: list[pa.Table], keys: list[str]) -> pa.Table:
    return pa.concat_tables(parts).sort_by([(key, "ascending") for key in keys])
