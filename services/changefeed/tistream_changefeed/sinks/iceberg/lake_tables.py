"""The Iceberg tables of a feed: finds or creates them, and writes rows and DDLs into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile

from tistream.clock import Clock
from tistream.decode.cells.defaults import origin_default
from tistream.decode.cells.kinds import arrow_type, kind_of
from tistream.errors import CannotEncode
from tistream.read.cursor import Position
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.failure import failed, fenced, retry
from tistream_changefeed.core.shard import Order
from tistream_changefeed.rows.net import TableNet
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.sinks.iceberg import marks as texts
from tistream_changefeed.sinks.iceberg.field_types import converted
from tistream_changefeed.sinks.iceberg.kept.created_tables import CreatedTables
from tistream_changefeed.sinks.iceberg.kept.lake_table import (
    DROPPED,
    FIELDS,
    SINCE,
    SOURCE,
    TABLE_ID,
    LakeTable,
    shape_of,
)
from tistream_changefeed.sinks.iceberg.key_ranges import merged, pieces, rewrites
from tistream_changefeed.sinks.iceberg.lake import CONFLICT, Commit, Lake, rolled_back
from tistream_changefeed.sinks.iceberg.lake_files import key_range, read_file, write_file
from tistream_changefeed.sinks.iceberg.lake_pipeline import TableDdl
from tistream_changefeed.sinks.iceberg.lake_rows import by_hour, change_rows, replaced_keys, table_rows, truncate_row
from tistream_changefeed.sinks.iceberg.marks import Marks
from tistream_changefeed.sinks.iceberg.table_schema import EMPTY, Shape, evolved, parsed
from tistream_changefeed.sinks.iceberg.target import Identifier, LakeTarget, set_aside

_TRUNCATE = "truncate table"
_ROWS_MOVE = frozenset({"drop partition", "truncate partition", "exchange partition", "recover table"})


class LakeTables:
    """The tables of a feed as one worker writes them. `new_name` makes unique names of files. `since_ts`: all rows of a
    table that is created now come after it. Every call may raise FeedFailed."""

    def __init__(self, lake: Lake, target: LakeTarget, order: Order, clock: Clock, new_name: Callable[[], str]) -> None:
        self._lake, self._target, self._order, self._clock, self._new_name = lake, target, order, clock, new_name
        self.feed = f"{order.tenant}/{order.feed_id}"
        self.created = CreatedTables(lake)
        self.since_ts = order.start_ts
        self._open: dict[Identifier, LakeTable] = {}

    # ---- finding

    def table(
        self, version: TableVersion, shape: Shape, before: TableVersion | None = None, since_ts: int | None = None
    ) -> LakeTable:
        """The Iceberg table for the rows of a table version; it is created if it does not exist. `before`: the version
        that a DDL has changed to `version`. `since_ts`: that of a table that is created; None: `self.since_ts`. If the
        name belongs to the rows of a dropped table of TiDB, that Iceberg table is renamed first. If it has another
        logical id without a drop, it is the same table: TiDB gives a new id when partitions are removed."""
        identifier = self._target.identifier(version.name, shape)
        found = self._loaded(identifier, shape)
        if found is not None and found.table_id != version.head.id and DROPPED in found.table.properties:
            self._set_aside(found, version)
            found = None
        if found is not None:
            self._check_source(found, version, before)
            found.table_id = version.head.id
        if found is None:
            properties = {texts.FEED: self.feed, SOURCE: ".".join(version.name), TABLE_ID: str(version.head.id)}
            properties |= {FIELDS: EMPTY.text, SINCE: str(self.since_ts if since_ts is None else since_ts)}
            table = self._lake.create(identifier, shape, properties, self._new_name(), self._clock.now_ms())
            self.created.known.put(str(table.metadata.table_uuid), identifier)
            found = LakeTable(identifier, shape, table, version.head.id, parsed(table.schema(), EMPTY.text), None)
            self._open[identifier] = found
        try:
            schema = evolved(found.schema, shape, version, before)
        except CannotEncode as error:
            raise failed("ddl", ".".join(version.name), str(error)) from error
        if schema != found.schema:
            found.schema, found.evolves = schema, True
        return found

    def _loaded(self, identifier: Identifier, shape: Shape, *, older: bool = False) -> LakeTable | None:
        """The Iceberg table with this name, which is read at the first call; None if it does not exist. `older`: accept
        a table that another program has rolled back. Raises FeedFailed if another feed or program writes it, or a newer
        worker of this feed."""
        if identifier in self._open:
            return self._open[identifier]
        table = self._lake.load(identifier)
        where = self._lake.named(identifier)
        if table is None:
            self.created.check(identifier, None)
            return None
        owner = table.properties.get(texts.FEED)
        if owner != self.feed:
            raise failed("sink", where, f"{owner or 'another program'} writes it: give this feed another namespace")
        newest = texts.newest(self._lake.told(table), table.properties, self._order.tenant, where)
        marks = None if newest is None else newest.marks
        self._check_fence(where, marks)
        uuid = str(table.metadata.table_uuid)
        self.created.check(identifier, uuid)
        if not older and not self.created.shows_newest(uuid, newest):
            raise rolled_back(where)
        if DROPPED in table.properties:  # any program may drop it
            self.created.known.forget(uuid)
        with self._lake.asking(where):
            schema = parsed(table.schema(), table.properties.get(FIELDS, "{}"))
            number = int(table.properties.get(TABLE_ID, 0))
        found = self._open[identifier] = LakeTable(identifier, shape, table, number, schema, marks)
        return found

    def _check_fence(self, where: str, marks: Marks | None) -> None:
        fence = self._order.fence
        if marks is None:
            return
        if marks.fence > fence:
            raise fenced(where, f"a worker with epoch {marks.fence.epoch} has written it; this one has {fence.epoch}")
        if marks.fence.generation < fence.generation:
            raise failed("sink", where, "a feed of this name that was removed has written it: drop or rename the "
                         "table, or create the feed under another name")  # fmt: skip

    def _check_source(self, found: LakeTable, version: TableVersion, before: TableVersion | None = None) -> None:
        source = found.table.properties.get(SOURCE)
        if source not in {".".join(one.name) for one in (version, before) if one is not None}:
            raise failed("sink", self._lake.named(found.identifier), f"it has the rows of {source}, and those of "
                         f"{'.'.join(version.name)} would be mixed with them: put {{database}} into the namespace, or "
                         "leave one of the tables out by filter.rules")  # fmt: skip

    def _set_aside(self, old: LakeTable, after: TableVersion) -> None:
        """Rename a table whose table of TiDB was dropped, because `after` gets its name."""
        if DROPPED not in old.table.properties:  # the feed leaves out the DDL that has dropped it
            self._check_source(old, after)
        dropped_ts = int(old.table.properties.get(DROPPED, old.through_ts))
        self._move(old, set_aside(old.identifier, dropped_ts))
        self.created.known.forget(str(old.table.metadata.table_uuid))

    def _move(self, found: LakeTable, goal: Identifier) -> None:
        """Rename a table. No catalog renames on a condition, so the table is read just before, and compared after: a
        newer worker may have put another one in its place."""
        uuid, source = found.table.metadata.table_uuid, found.identifier
        del self._open[source]
        fresh = self._loaded(source, found.shape)
        same = fresh is not None and fresh.table.metadata.table_uuid == uuid
        if same:
            del self._open[source]
            same = self._lake.rename(source, goal).metadata.table_uuid == uuid
            if not same:
                self._lake.rename(goal, source)
        if not same:
            raise retry("sink", self._lake.named(source), "another worker has replaced the table", CONFLICT)
        self.created.known.put(str(uuid), goal)

    def fence(self, begun: Sequence[Identifier], at: Position, *, loading: bool) -> None:
        """Commit this worker's fence to the tables `begun`, to which an earlier worker may be about to commit. That
        worker's commits are then refused. `at`: the position of the feed. `loading`: the feed is loading its initial
        rows."""
        self.created.moving = begun
        for identifier in begun:
            self._fence(identifier, at, loading=loading)
        self.created.moving = ()

    def _fence(self, identifier: Identifier, at: Position, *, loading: bool) -> None:
        there = self._lake.load(identifier)
        if there is None or there.properties.get(texts.FEED) != self.feed:
            return
        found = self._loaded(identifier, shape_of(identifier))
        if found is not None and (found.marks is None or found.marks.fence != self._order.fence):
            loaded = b"" if found.marks is None and loading else found.loaded
            self._commit(found, at if found.marks is None else found.marks.at, loaded=loaded)

    def accept_older(self, at: Position, *, loading: bool) -> None:
        """Continue after `at` with tables that another program has rolled back or dropped, although they lack rows.
        Only for a feed whose checkpoint a user has moved to `at`. `loading`: the feed is loading its initial rows; each
        table continues with the rows above the key up to which it has them."""
        self.created.accept_gone()
        for uuid, identifier in self.created.known:
            found = self._loaded(identifier, shape_of(identifier), older=True)
            assert found is not None
            newest = texts.newest(
                self._lake.told(found.table), found.table.properties, self._order.tenant, self._lake.named(identifier)
            )
            if not self.created.shows_newest(uuid, newest):
                self._commit(found, at, loaded=(found.loaded or b"") if loading else None)

    def create(self, version: TableVersion, shape: Shape, at: Position) -> None:
        """Create the Iceberg table for initial rows as of `at`, unless it exists."""
        table = self.table(version, shape, since_ts=0)
        if table.marks is None:
            self._commit(table, at, loaded=b"")

    # ---- rows

    def add_changes(self, table: LakeTable, batches: Sequence[RowBatch]) -> None:
        """Write events into data files of a table of changes. `commit_changes` commits them."""
        for hour, rows in by_hour(change_rows(batches, table.schema)):
            self._write(table, rows, hour)

    def _write(self, table: LakeTable, rows: pa.Table, hour: int | None) -> None:
        for part in pieces(rows, self._target.file_bytes):
            with self._lake.asking(self._lake.named(table.identifier)):
                table.files.append(write_file(table.table, table.schema.schema, part, self._new_name(), hour))

    def commit_changes(self, table: LakeTable, at: Position, loaded: bytes | None) -> None:
        """Commit the files that `add_changes` has written. All events up to `at` are then in the table. `loaded`: while
        the feed loads its initial rows, the highest raw key that the table then has; otherwise None."""
        self._commit(table, at, loaded=loaded)

    def commit_net(self, table: LakeTable, nets: Sequence[TableNet], at: Position, loaded: bytes | None) -> None:
        """Commit a net change to the mirrored table. All events up to `at` are then in it. `loaded`: while the feed
        loads its initial rows, the highest raw key that the table then has; otherwise None. Raises FeedFailed if the
        table has no key."""
        keys = [column.name for column in nets[-1].handle]
        if not keys:
            raise failed("encode", ".".join(nets[-1].version.name), "the table has no primary key and no unique key "
                         "that is NOT NULL: only mode=changelog has its rows")  # fmt: skip
        earlier = SINCE not in table.table.properties  # releases that leave rows of lost keys do not set it
        deleted = [keys for one in nets for keys in replaced_keys(one, inserts=earlier)]
        puts = pa.concat_tables(
            [table_rows(one.columns, rows, table.schema) for one in nets for rows in (one.updates, one.inserts)]
        )
        first = nets[-1].handle[0]
        there = self._lake.files(table.table)
        ranges = [key_range(table.table.schema(), one, table.schema.fields[first.id]) for one in there]
        gone = pa.chunked_array([one[first.name].combine_chunks() for one in deleted], puts[first.name].type)
        plan = rewrites(ranges, gone.combine_chunks(), puts[first.name].combine_chunks())
        removed = {one.file for one in plan}
        for one in plan:
            rows = puts.slice(0, 0) if one.file is None else self._read(table, there[one.file])
            self._write(table, merged(rows, keys, deleted, puts.take(pa.array(one.puts))), None)
        if table.evolves and table.schema.filled:
            for number in {*range(len(there))} - removed:
                self._write(table, self._read(table, there[number]), None)
            removed |= {*range(len(there))}
        self._commit(table, at, [file for number, file in enumerate(there) if number in removed], loaded=loaded)

    def _all_if_filled(self, table: LakeTable, there: Sequence[DataFile]) -> list[DataFile]:
        """All files of `there`, if the table's next schema adds columns whose default is the value of existing rows, so
        that files must be rewritten; otherwise none."""
        return list(there) if table.evolves and table.schema.filled else []

    def _read(self, table: LakeTable, file: DataFile) -> pa.Table:
        """Read the rows of a data file in the columns of the table's next schema. Columns that it adds have their
        default."""
        with self._lake.asking(self._lake.named(table.identifier)):
            rows = read_file(table.table, table.schema.schema, file)
        if table.evolves:
            for column in table.schema.filled:
                place = rows.schema.get_field_index(column.name)
                value = converted(column, pa.array([origin_default(column)], arrow_type(kind_of(column))))
                filled = value.take(pa.array(np.zeros(rows.num_rows, np.int64))).cast(rows.schema.field(place).type)
                rows = rows.set_column(place, rows.schema.field(place), filled)
        return rows

    # ---- DDLs

    def touched(self, mark: TableDdl) -> list[Identifier]:
        """The names of the Iceberg tables that a DDL may rename or commit to, including names used while it renames.
        Some of them may not exist."""
        found: dict[Identifier, None] = {}
        for shape in self._target.shapes:
            for change in mark.changes:
                found |= dict.fromkeys(self._target.identifier(name, shape) for name in change.names)
                if change.after is not None:
                    found[self._between(change.after, shape)] = None
        return list(found)

    def _between(self, after: TableVersion, shape: Shape) -> Identifier:
        """The name of a table while its name is changed to that of `after`: two tables may swap their names."""
        goal = self._target.identifier(after.name, shape)
        return (*goal[:-1], f"{goal[-1]}__renamed_{after.head.id}")

    def ddl(self, mark: TableDdl) -> None:
        """Apply a DDL. All rows before it must be committed. Idempotent, so it can be repeated after a crash."""
        self.created.moving = self.touched(mark)
        for shape in self._target.shapes:
            if shape == "table" and mark.event.action in _ROWS_MOVE:
                raise failed("ddl", f"{mark.event.database}.{mark.event.table}", f"{mark.event.action} at commit_ts "
                             f"{mark.event.commit_ts}: rows come or go without events; leave the table out by "
                             "filter.rules, or set mode=changelog")  # fmt: skip
            self._rename(mark, shape)
            for change in mark.changes:
                if change.after is not None and change.after.head.kind == "table":
                    self._changed(mark, shape, change.before, change.after)
                elif change.before is not None and change.before.head.kind == "table":
                    self._dropped(mark, shape, change.before)
        self.created.moving = ()

    def _rename(self, mark: TableDdl, shape: Shape) -> None:
        """Rename the Iceberg tables of this shape whose tables a DDL renames. Each first gets a temporary name, because
        two tables may swap their names."""
        moved = [one for one in mark.changes if one.before and one.after and one.before.name != one.after.name]
        between: list[tuple[Identifier, Identifier, TableVersion]] = []
        for one in moved:
            assert one.before is not None
            assert one.after is not None
            source, goal = (self._target.identifier(version.name, shape) for version in (one.before, one.after))
            middle = self._between(one.after, shape)
            found = self._loaded(source, shape)
            if found is not None and found.table_id == one.before.head.id and source != goal:
                self._move(found, middle)
            between.append((middle, goal, one.after))
        for middle, goal, after in between:
            found = self._loaded(middle, shape)
            if found is None:
                continue
            other = self._loaded(goal, shape)
            if other is not None:
                self._set_aside(other, after)
            self._move(found, goal)

    def _changed(self, mark: TableDdl, shape: Shape, before: TableVersion | None, after: TableVersion) -> None:
        event = mark.event
        found = self._loaded(self._target.identifier(after.name, shape), shape)
        if found is not None and before is None and found.table_id != after.head.id:
            self._set_aside(found, after)
        table = self.table(after, shape, before, event.commit_ts)
        if table.through_ts >= event.commit_ts and not table.evolves:
            return
        removed: list[DataFile] = []
        if event.action == _TRUNCATE and shape == "table":
            removed = self._lake.files(table.table)
        elif event.action == _TRUNCATE:
            row = truncate_row(table.schema, event.commit_ts, event.start_ts, event.schema_version)
            for hour, rows in by_hour(row):
                self._write(table, rows, hour)
        elif shape == "table":
            removed = self._all_if_filled(table, self._lake.files(table.table))
            for file in removed:
                self._write(table, self._read(table, file), None)
        known = {SOURCE: ".".join(after.name), TABLE_ID: str(after.head.id)}
        if table.evolves or removed or table.files or not known.items() <= table.table.properties.items():
            self._commit(table, Position(event.commit_ts), removed, known)

    def _dropped(self, mark: TableDdl, shape: Shape, before: TableVersion) -> None:
        found = self._loaded(self._target.identifier(before.name, shape), shape)
        if found is not None and found.table_id == before.head.id and DROPPED not in found.table.properties:
            ts = mark.event.commit_ts
            self._commit(found, Position(ts), (), {DROPPED: str(ts)})
            self.created.known.forget(str(found.table.metadata.table_uuid))

    # ---- commits

    def _commit(
        self,
        table: LakeTable,
        at: Position,
        removed: Sequence[DataFile] = (),
        properties: Mapping[str, str] | None = None,
        loaded: bytes | None = None,
    ) -> None:
        marks = Marks(self.feed, at, self._order.fence, loaded)
        shown = marks.texts(self._order.tenant)
        now_ms, sequence = self._clock.now_ms(), table.table.metadata.next_sequence_number()
        change = Commit(
            shown,
            now_ms,
            {**shown, texts.SEQUENCE: str(sequence), FIELDS: table.schema.text, **(properties or {})},
            tuple(table.files),
            removed,
            table.schema.schema if table.evolves else None,
            at.low_ts,
            [name for name in (texts.LOADED,) if name in table.table.properties and name not in shown],
        )
        self._lake.commit(table.table, change)
        self.created.known.committed(str(table.table.metadata.table_uuid), sequence)
        table.files, table.marks, table.evolves = [], marks, False
        if self._lake.merges_manifests(table.table):
            self._lake.commit(table.table, Commit(shown, now_ms))
