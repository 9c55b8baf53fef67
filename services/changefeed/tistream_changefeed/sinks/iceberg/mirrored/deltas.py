"""The delta tables of a feed: small changes wait there (`t_delta`), and a table itself is rewritten only when they are
many. The rows as of now are those of the table whose key the delta does not have, and those of the delta (`t_now`).

Two tables are two commits, so their order matters. In a window, the table takes what the delta had before this window,
if it is due; then the delta gets the window's changes. It keeps the rows that the table has taken for one window more.
So the table is never newer than the delta, the table alone shows one ts, and a reader may open the two in any order
within a window: a key is either in the delta, or its row in the table is the newest. Each commit of a delta names the
snapshot of the table that it belongs to (`tistream.base`); a reader of both is then exact whatever happens between.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from tistream.read.cursor import Position
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.failure import failed
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.net import TableNet
from tistream_changefeed.sinks.iceberg.kept.lake_table import (
    BASE,
    DELTA,
    DROPPED,
    KEYS,
    MERGED,
    NOW,
    SINCE,
    SOURCE,
    TABLE_ID,
    TAKEN,
    LakeTable,
)
from tistream_changefeed.sinks.iceberg.key_ranges import rewrites
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_files import key_range, read_file
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema
from tistream_changefeed.sinks.iceberg.lake_tables import LakeTables
from tistream_changefeed.sinks.iceberg.mirrored.delta_rows import delta_rows, live
from tistream_changefeed.sinks.iceberg.mirrored.mirrored_rows import MirroredRows, key_names
from tistream_changefeed.sinks.iceberg.mirrored.now_view import QUOTES, now_query
from tistream_changefeed.sinks.iceberg.table_schema import DELETED_NAME
from tistream_changefeed.sinks.iceberg.target import Identifier, delta_of, now_of

_FILES_MAX = 8  # a delta with more files is due: its rows are held in memory


class _Files(NamedTuple):
    """The files of a delta. `old`: the table has had their rows since before the delta's newest commit. `taken`: the
    table has them since then. `waiting`: it does not have them yet."""

    old: list[DataFile]
    taken: list[DataFile]
    waiting: list[DataFile]


class Deltas:
    """Writes the tables themselves, with a delta if the feed has deltas. `share`: the percentage of the rows of the
    files with changes from which on these are rewritten; 0: there are no deltas. Every call may raise FeedFailed."""

    def __init__(self, lake: Lake, tables: LakeTables, rows: MirroredRows, share: int) -> None:
        self._lake, self._tables, self._rows, self._share = lake, tables, rows, share

    def of(self, table: LakeTable) -> LakeTable | None:
        """The delta of a table; None if it has none."""
        if not table.table.properties.get(DELTA):
            return None
        found = self._tables.loaded(delta_of(table.identifier), "delta")
        return None if found is None or DROPPED in found.table.properties else found

    def names(self, table: LakeTable) -> list[Identifier]:
        """The names of the Iceberg tables that `commit` commits to."""
        both = self._share or table.table.properties.get(DELTA)
        return [table.identifier, delta_of(table.identifier)] if both else [table.identifier]

    def through_ts(self, table: LakeTable) -> int:
        """The commit_ts up to which a table and its delta have all changes."""
        delta = self.of(table)
        return table.through_ts if delta is None else max(table.through_ts, delta.through_ts)

    def commit(
        self, table: LakeTable, version: TableVersion, nets: Sequence[TableNet], at: Position, loaded: bytes | None
    ) -> None:
        """Commit a net change to a table or to its delta. All events up to `at` are then in one of them. Arguments as
        of MirroredRows.commit_net. While the feed loads its initial rows, they go into the table."""
        if not self._share and table.table.properties.get(DELTA):
            self.retire(table)
        direct = not self._share or loaded is not None
        there = None if direct else self._tables.loaded(delta_of(table.identifier), "delta")
        if direct or self._is_of_another(there, table):
            self._rows.commit_net(table, nets, at, loaded)
            return
        keys = key_names(nets)
        if there is None or DROPPED in there.table.properties:
            self._drop_view(table)  # of an earlier table: the new delta has no columns until its first commit
        delta = self._tables.table(version, "delta")
        if table.marks is None or not table.table.properties.get(DELTA):
            begun = Position(int(table.table.properties.get(SINCE, "0"))) if table.marks is None else table.marks.at
            self._tables.commit(table, begun, self._rows.filled(table), {DELTA: delta.identifier[-1]})
        else:
            self._check_newer(table, delta)
            if table.evolves or self._due(table, delta):
                self._take(table, delta)
        self._put(table, delta, keys, delta_rows(nets, keys, delta.schema), at)
        self._store_view(table, delta, keys)

    def _is_of_another(self, delta: LakeTable | None, table: LakeTable) -> bool:
        """Whether the name of a table's delta belongs to a table of TiDB, whose rows it has. Then no change waits."""
        if delta is None or DROPPED in delta.table.properties:
            return False
        return delta.table.properties.get(SOURCE) != table.table.properties.get(SOURCE)

    def _put(self, table: LakeTable, delta: LakeTable, keys: Sequence[str], rows: pa.Table, at: Position) -> None:
        """Commit changed rows to a delta, instead of the rows that it has for their keys."""
        files = self._files(table, delta)
        changed, removed = [rows.select(list(keys))], [*files.old]
        if delta.evolves:
            removed += files.taken
            kept = []
        else:
            gone = self._rows.write(delta, keys, changed, rows.slice(0, 0), files.taken)
            removed += gone
            replaced = {one.file_path for one in gone}
            kept = [one.file_path for one in (*files.taken, *delta.files) if one.file_path not in replaced]
        removed += self._rows.write(delta, keys, changed, rows, files.waiting)
        self._commit(table, delta, keys, removed, at, {MERGED: json.dumps(kept)})

    def _commit(
        self,
        table: LakeTable,
        delta: LakeTable,
        keys: Sequence[str],
        removed: Sequence[DataFile],
        at: Position,
        known: dict[str, str],
    ) -> None:
        delta.stated = {BASE: str(snapshot_of(table))}
        fields = [delta.schema.schema.find_field(key).field_id for key in keys]
        if fields:  # else a DDL has dropped the key, and the next row fails the feed
            known = {KEYS: json.dumps(fields), NOW: self._query(table, delta, keys, '"'), **known}
        self._tables.commit(delta, at, removed, known)

    # ---- what the table takes

    def _files(self, table: LakeTable, delta: LakeTable) -> _Files:
        listed = set(json.loads(delta.table.properties.get(MERGED, "[]")))
        there = self._lake.files(delta.table)
        old = [one for one in there if one.file_path in listed]
        rest = [one for one in there if one.file_path not in listed]
        taken = table.table.properties.get(TAKEN) == str(snapshot_of(delta))
        return _Files(old, rest if taken else [], [] if taken else rest)

    def _due(self, table: LakeTable, delta: LakeTable) -> bool:
        """Whether the waiting rows of a delta are more than `share` percent of the rows of the files that they
        change."""
        waiting = self._files(table, delta).waiting
        if not waiting or len(waiting) > _FILES_MAX:
            return bool(waiting)
        first = self._keys(delta)[0]
        field = delta.table.schema().find_field(first)
        with self._lake.asking(self._lake.named(delta.identifier)):
            read = pa.concat_tables([read_file(delta.table, Schema(field), one) for one in waiting])
        keys = read[first].combine_chunks()
        there, number = self._lake.files(table.table), table.schema.schema.find_field(first).field_id
        ranges = [key_range(table.table.schema(), one, number) for one in there]
        changed = [one.file for one in rewrites(ranges, keys, keys) if one.file is not None]
        return len(keys) * 100 > self._share * sum(there[at].record_count for at in changed)

    def _take(self, table: LakeTable, delta: LakeTable) -> None:
        """Commit the waiting rows of a delta to its table, as of the delta's newest commit."""
        self._check_newer(table, delta)
        waiting = self._files(table, delta).waiting
        assert table.marks is not None
        if not waiting or delta.marks is None:
            if table.evolves:
                self._tables.commit(table, table.marks.at, self._rows.filled(table))
            return
        keys = self._keys(delta)
        found = pa.concat_tables([self._rows.read(delta, one) for one in waiting])
        kind = arrow_schema(table.schema.schema)
        rows = live(found).select(kind.names).cast(kind)
        removed = self._rows.write(table, keys, [found.select(keys)], rows)
        at = max(table.marks.at, delta.marks.at)
        self._tables.commit(table, at, removed, {TAKEN: str(snapshot_of(delta))})

    def _check_newer(self, table: LakeTable, delta: LakeTable) -> None:
        """Raise FeedFailed if the table has newer rows than its delta, whose waiting rows would replace them."""
        if table.marks is None or delta.marks is None or table.marks.at <= delta.marks.at:
            return
        if self._files(table, delta).waiting:
            name = ".".join(delta.identifier)
            raise failed("sink", self._lake.named(table.identifier), f"a release without deltas has written newer rows "
                         f"into it than {name} has: drop or rename {name}, then resume the changefeed with its "
                         f"checkpoint_ts; it goes on without the changes that only {name} has")  # fmt: skip

    def _keys(self, delta: LakeTable) -> list[str]:
        """The names of the key columns, as of the delta's next schema."""
        fields = json.loads(delta.table.properties[KEYS])
        return [delta.schema.schema.find_field(one).name for one in fields]

    # ---- DDLs

    def settle(self, version: TableVersion, ts: int) -> None:
        """Let a table take all rows of its delta, because a DDL at the commit_ts `ts` follows. If the DDL was applied
        to the table already, the table has taken them."""
        table = self._tables.loaded(self._tables.newest(version.name, "table"), "table")
        if table is not None and table.through_ts < ts:
            delta = self.of(table)
            if delta is not None:
                self._take(table, delta)

    def follow(self, table: LakeTable, before: TableVersion | None, after: TableVersion, event: DdlEvent) -> None:
        """Apply to a delta what a DDL has changed in its table. The delta is empty then: the table has its rows, or a
        TRUNCATE has removed them."""
        if self.of(table) is None:
            return
        delta = self._tables.table(after, "delta", before, event.commit_ts, event.query)
        known = {SOURCE: ".".join(after.name), TABLE_ID: str(after.head.id)}
        changed = delta.through_ts < event.commit_ts <= table.through_ts
        if delta.marks is not None and (changed or delta.evolves):
            keys, files = [column.name for column in handle_columns(after.table)], self._lake.files(delta.table)
            self._commit(table, delta, keys, files, Position(event.commit_ts), {**known, MERGED: "[]"})
            if keys:
                self._store_view(table, delta, keys)

    def make_way(self, table: LakeTable, goal: Identifier, after: TableVersion) -> None:
        """Let a table go on without a delta if it will be renamed to `goal`, and another table of TiDB has the name
        that the delta would get."""
        if self.of(table) is not None:
            other = self._tables.loaded(delta_of(goal), "delta")
            free = other is None or DROPPED in other.table.properties
            if other is not None and not free and other.table.properties.get(SOURCE) != ".".join(after.name):
                self.retire(table)

    def move(self, table: LakeTable, goal: Identifier, after: TableVersion) -> None:
        """Rename the delta of a table that will be renamed to `goal`."""
        delta = self.of(table)
        if delta is None:
            return
        other = self._tables.loaded(delta_of(goal), "delta")
        if other is not None:
            self._tables.set_aside(other, after)
        self._drop_view(table)
        self._tables.move(delta, delta_of(goal))

    def dropped(self, table: LakeTable, ts: str) -> None:
        """Mark the delta of a table whose table of TiDB was dropped at `ts`. The table has taken its rows."""
        delta = self.of(table)
        if delta is not None and delta.marks is not None:
            self._tables.commit(delta, delta.marks.at, (), {DROPPED: ts})
            self._tables.created.known.forget(str(delta.table.metadata.table_uuid))

    def retire(self, table: LakeTable) -> None:
        """Merge the rows of a table's delta into the table, and end the use of the delta: empty it, mark it as
        dropped, and drop the view. The Iceberg table of the delta stays in the catalog. Later DDLs do not
        change it."""
        delta = self.of(table)
        if delta is not None and delta.marks is not None:
            self._take(table, delta)
            ended = {DROPPED: str(delta.marks.at.low_ts), NOW: "", MERGED: "[]"}
            self._commit(table, delta, (), self._lake.files(delta.table), delta.marks.at, ended)
            self._tables.created.known.forget(str(delta.table.metadata.table_uuid))
        self._drop_view(table)
        assert table.marks is not None
        self._tables.commit(table, table.marks.at, (), {DELTA: ""})

    # ---- the view

    def _query(self, table: LakeTable, delta: LakeTable, keys: Sequence[str], quote: str) -> str:
        columns = [one.name for one in delta.schema.schema.fields if one.name != DELETED_NAME]
        return now_query(table.identifier, delta.identifier, columns, keys, quote)

    def _store_view(self, table: LakeTable, delta: LakeTable, keys: Sequence[str]) -> None:
        """Store the view `t_now` in the catalog, if it can have views."""
        queries = {dialect: self._query(table, delta, keys, quote) for dialect, quote in QUOTES.items()}
        name = now_of(table.identifier)
        if not self._tables.created.known.at(name):  # else a table of TiDB has this name
            shown = [one for one in delta.schema.schema.fields if one.name != DELETED_NAME]
            self._tables.views.put(name, Schema(*shown), queries, ".".join(table.identifier))

    def _drop_view(self, table: LakeTable) -> None:
        self._tables.views.drop(now_of(table.identifier))


def snapshot_of(table: LakeTable) -> int:
    """The id of the current snapshot of a table; 0 if it has none."""
    return table.table.metadata.current_snapshot_id or 0
