"""The Iceberg tables of a feed: finds or creates them, and commits to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile

from tistream.clock import Clock
from tistream.errors import CannotEncode
from tistream.read.cursor import Position
from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.core.failure import failed, fenced, retry
from tistream_changefeed.core.shard import Order
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.sinks.iceberg import marks as texts
from tistream_changefeed.sinks.iceberg.kept.created_tables import CreatedTables
from tistream_changefeed.sinks.iceberg.kept.lake_table import (
    BASE,
    DELTA,
    DROPPED,
    FIELDS,
    SINCE,
    SOURCE,
    TABLE_ID,
    WHOLE,
    LakeTable,
    shape_of,
)
from tistream_changefeed.sinks.iceberg.kept.table_versions import newest_version
from tistream_changefeed.sinks.iceberg.key_ranges import pieces
from tistream_changefeed.sinks.iceberg.lake import CONFLICT, Commit, Lake, rolled_back
from tistream_changefeed.sinks.iceberg.lake_files import write_file
from tistream_changefeed.sinks.iceberg.lake_rows import by_hour, change_rows
from tistream_changefeed.sinks.iceberg.marks import Marks
from tistream_changefeed.sinks.iceberg.mirrored.lake_views import LakeViews
from tistream_changefeed.sinks.iceberg.table_schema import EMPTY, Shape, evolved, parsed
from tistream_changefeed.sinks.iceberg.target import (
    Identifier,
    LakeTarget,
    contents_of,
    delta_of,
    now_of,
    number_of,
    set_aside,
    version_of,
)
from tistream_changefeed.table_errors.tables_refused import TablesRefused


class LakeTables:
    """The tables of a feed as one worker writes them. `new_name` makes unique names of files. `since_ts`: all rows of a
    table that is created now come after it. `begun_ts`: the tables have the rows that have changed after it. Every call
    may raise FeedFailed, and TablesRefused for a table of TiDB that cannot have its Iceberg table."""

    def __init__(self, lake: Lake, target: LakeTarget, order: Order, clock: Clock, new_name: Callable[[], str]) -> None:
        self._lake, self._target, self._order, self._clock, self._new_name = lake, target, order, clock, new_name
        self.feed = f"{order.tenant}/{order.feed_id}"
        self.created = CreatedTables(lake)
        self.views = LakeViews(lake)
        self.since_ts = order.start_ts
        self.begun_ts = 0 if target.loads else order.start_ts
        self._open: dict[Identifier, LakeTable] = {}

    # ---- finding

    def forget(self) -> None:
        """Forget what was read, and files that are in no snapshot: each table is read again at its next use."""
        self._open, self.created.moving = {}, ()

    def table(
        self,
        version: TableVersion,
        shape: Shape,
        before: TableVersion | None = None,
        since_ts: int | None = None,
        query: str | None = None,
    ) -> LakeTable:
        """The Iceberg table for the rows of a table version; it is created if it does not exist. `before`: the version
        that a DDL with this `query` has changed to `version`. `since_ts`: that of a table that is created; None:
        `self.since_ts`. If the name belongs to the rows of a dropped table of TiDB, that Iceberg table is renamed
        first. If it has another logical id without a drop, it is the same table: TiDB gives a new id when partitions
        are removed."""
        found = self.loaded(self.newest(version.name, shape), shape)
        if found is not None and DROPPED in found.table.properties:
            if shape == "delta":
                self.set_aside(found, version)
                found = None
            elif found.table_id != version.head.id:
                self.set_aside_all(version, shape)
                found = None
        if found is not None:
            self.check_source(found, version, before)
            found.table_id = version.head.id
        if found is None:
            since = {SINCE: str(self.since_ts if since_ts is None else since_ts)}
            found = self.new_table(self.newest(version.name, shape), version, shape, since)
        try:
            schema = evolved(found.schema, shape, version, before, query)
        except CannotEncode as error:
            raise TablesRefused([version.name], f"table {'.'.join(version.name)}: {error}") from error
        if schema != found.schema:
            found.schema, found.evolves = schema, True
        return found

    def new_table(
        self, identifier: Identifier, version: TableVersion, shape: Shape, more: Mapping[str, str]
    ) -> LakeTable:
        """Create an Iceberg table without columns for the rows of a table version. `more`: properties besides those of
        every table. A view of the feed that has the name gives way: its delta has the query of the view too."""
        self.views.drop_if_now(identifier)
        properties = {texts.FEED: self.feed, SOURCE: ".".join(version.name), TABLE_ID: str(version.head.id)}
        properties |= {FIELDS: EMPTY.text, **more}
        table = self._lake.create(identifier, shape, properties, self._new_name(), self._clock.now_ms())
        self.created.known.put(str(table.metadata.table_uuid), identifier)
        found = LakeTable(identifier, shape, table, version.head.id, parsed(table.schema(), EMPTY.text), None)
        self._open[identifier] = found
        return found

    def newest(self, name: Name, shape: Shape) -> Identifier:
        """The name of the newest version of the Iceberg table for a table of TiDB; it may not exist."""
        first = self._target.identifier(name, shape)
        if shape == "changes":
            return first
        if shape == "delta":
            return delta_of(self.newest(name, "table"))
        source = ".".join(name)
        return newest_version(first, source, lambda one: self.loaded(one, shape), self.created.known)

    def loaded(self, identifier: Identifier, shape: Shape, *, older: bool = False) -> LakeTable | None:
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
        stated = {BASE: table.properties[BASE]} if BASE in table.properties else {}
        found = self._open[identifier] = LakeTable(identifier, shape, table, number, schema, marks, stated=stated)
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

    def check_source(self, found: LakeTable, version: TableVersion, before: TableVersion | None = None) -> None:
        """Check that an Iceberg table has the rows of the table of TiDB that is now `version`, and was `before`. Raises
        TablesRefused."""
        self.check_owner(found, version, {".".join(one.name) for one in (version, before) if one is not None})

    def check_owner(self, found: LakeTable, version: TableVersion, sources: Collection[str]) -> None:
        """Check that an Iceberg table, which `version` would have, is that of one of the tables `sources` of TiDB.
        Raises TablesRefused."""
        source = found.table.properties.get(SOURCE, "another table")
        if source not in sources:
            name, where = ".".join(version.name), self._lake.named(found.identifier)
            raise TablesRefused(
                [version.name],
                f"table {name}: its Iceberg table would be {where}, which has {contents_of(found.identifier, source)}: "
                f"leave {name} out by filter.rules, then resume; another changefeed can send it into another namespace",
            )

    def set_aside(self, old: LakeTable, after: TableVersion) -> None:
        """Rename a table whose table of TiDB was dropped, because `after` gets its name."""
        if DROPPED not in old.table.properties:  # the feed leaves out the DDL that has dropped it
            self.check_source(old, after)
        dropped_ts = int(old.table.properties.get(DROPPED, old.through_ts))
        delta = self.loaded(delta_of(old.identifier), "delta") if old.table.properties.get(DELTA) else None
        if delta is not None:
            self.views.drop(now_of(old.identifier))
            self.set_aside(delta, after)
        self.move(old, set_aside(old.identifier, dropped_ts))
        self.created.known.forget(str(old.table.metadata.table_uuid))

    def set_aside_all(self, after: TableVersion, shape: Shape) -> None:
        """Set aside every version of a table whose table of TiDB was dropped, because `after` gets its name. The oldest
        is first, so that the others are found after a crash."""
        first, newest = self._target.identifier(after.name, shape), self.newest(after.name, shape)
        for number in range(1, number_of(first, newest) + 1):
            found = self.loaded(version_of(first, number), shape)
            if found is not None and (number == 1 or found.table.properties.get(SOURCE) == ".".join(after.name)):
                self.set_aside(found, after)

    def move(self, found: LakeTable, goal: Identifier) -> None:
        """Rename a table. No catalog renames on a condition, so the table is read just before, and compared after: a
        newer worker may have put another one in its place."""
        uuid, source = found.table.metadata.table_uuid, found.identifier
        del self._open[source]
        fresh = self.loaded(source, found.shape)
        same = fresh is not None and fresh.table.metadata.table_uuid == uuid
        if same:
            del self._open[source]
            self.views.drop_if_now(goal)
            same = self._lake.rename(source, goal).metadata.table_uuid == uuid
            if not same:
                self._lake.rename(goal, source)
        if not same:
            raise retry("sink", self._lake.named(source), "another worker has replaced the table", CONFLICT)
        self.created.known.put(str(uuid), goal)

    def fence(self, begun: Sequence[Identifier], at: Callable[[str], Position], *, loading: bool) -> None:
        """Commit this worker's fence to the tables `begun`, to which an earlier worker may be about to commit. That
        worker's commits are then refused. `at` returns the position of a table of TiDB. `loading`: the feed is loading
        its initial rows."""
        self.created.moving = begun
        for identifier in begun:
            self._fence(identifier, at, loading=loading)
        self.created.moving = ()

    def _fence(self, identifier: Identifier, at: Callable[[str], Position], *, loading: bool) -> None:
        there = self._lake.load(identifier)
        if there is None or there.properties.get(texts.FEED) != self.feed:
            return
        found = self.loaded(identifier, shape_of(identifier))
        if found is not None and (found.marks is None or found.marks.fence != self._order.fence):
            loaded = b"" if found.marks is None and loading else found.loaded
            begun = found.table.properties.get(SOURCE, "")
            self.commit(found, at(begun) if found.marks is None else found.marks.at, loaded=loaded)

    def accept_older(self, at: Position, *, loading: bool) -> None:
        """Continue after `at` with tables that another program has rolled back or dropped, although they lack rows.
        Only for a feed whose checkpoint a user has moved to `at`. `loading`: the feed is loading its initial rows; each
        table continues with the rows above the key up to which it has them."""
        self.created.accept_gone()
        for uuid, identifier in self.created.known:
            found = self.loaded(identifier, shape_of(identifier), older=True)
            assert found is not None
            newest = texts.newest(
                self._lake.told(found.table), found.table.properties, self._order.tenant, self._lake.named(identifier)
            )
            if not self.created.shows_newest(uuid, newest):
                self.commit(found, at, loaded=(found.loaded or b"") if loading else None)
                name = delta_of(identifier)
                delta = self.loaded(name, "delta", older=True) if found.table.properties.get(DELTA) else None
                if delta is not None and delta.marks is not None and delta.marks.at < at:
                    self.commit(delta, at)  # no table is newer than its delta

    def create(self, version: TableVersion, shape: Shape, at: Position) -> None:
        """Create the Iceberg table for initial rows as of `at`, unless it exists."""
        table = self.table(version, shape, since_ts=0)
        if table.marks is None:
            self.commit(table, at, loaded=b"")

    # ---- rows

    def add_changes(self, table: LakeTable, batches: Sequence[RowBatch]) -> None:
        """Write events into data files of a table of changes. `commit_changes` commits them."""
        for hour, rows in by_hour(change_rows(batches, table.schema)):
            self.write(table, rows, hour)

    def write(self, table: LakeTable, rows: pa.Table, hour: int | None) -> None:
        """Write rows into data files, which the next commit adds. `hour`: their partition, in hours since 1970; None
        without partitions."""
        for part in pieces(rows, self._target.file_bytes):
            with self._lake.asking(self._lake.named(table.identifier)):
                table.files.append(write_file(table.table, table.schema.schema, part, self._new_name(), hour))

    def commit_changes(self, table: LakeTable, at: Position, loaded: bytes | None) -> None:
        """Commit the files that `add_changes` has written. All events up to `at` are then in the table. `loaded`: while
        the feed loads its initial rows, the highest raw key that the table then has; otherwise None."""
        self.commit(table, at, loaded=loaded)

    # ---- commits

    def is_whole(self, table: LakeTable) -> bool:
        """Whether only releases have written a table that delete the rows of lost keys (LakeTable.is_whole)."""
        return table.is_whole(self._order.tenant)

    def commit(
        self,
        table: LakeTable,
        at: Position,
        removed: Sequence[DataFile] = (),
        properties: Mapping[str, str] | None = None,
        loaded: bytes | None = None,
        tag: str | None = None,
    ) -> None:
        """Commit the written files of a table, its next schema, and that it has all events up to `at`. `removed`: the
        files that they replace. `properties`: more properties of the table. `loaded`: as of `commit_changes`. `tag`: a
        tag of the snapshot that stays."""
        marks = Marks(self.feed, at, self._order.fence, loaded)
        shown = {**marks.texts(self._order.tenant), **table.stated}
        now_ms, sequence = self._clock.now_ms(), table.table.metadata.next_sequence_number()
        whole = {WHOLE: shown[texts.CURSOR]} if self.is_whole(table) else {}
        change = Commit(
            shown,
            now_ms,
            {**shown, **whole, texts.SEQUENCE: str(sequence), FIELDS: table.schema.text, **(properties or {})},
            tuple(table.files),
            removed,
            table.schema.schema if table.evolves else None,
            at.low_ts,
            [name for name in (texts.LOADED,) if name in table.table.properties and name not in shown],
            tag,
        )
        self._lake.commit(table.table, change)
        self.created.known.committed(str(table.table.metadata.table_uuid), sequence)
        table.files, table.marks, table.evolves = [], marks, False
        if self._lake.merges_manifests(table.table):
            self._lake.commit(table.table, Commit(shown, now_ms))
