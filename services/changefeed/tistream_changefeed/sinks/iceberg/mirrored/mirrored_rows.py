"""Writes the rows of the tables themselves: files that are sorted by key, of which a commit replaces those whose rows
change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile

from tistream.decode.cells.defaults import origin_default
from tistream.decode.cells.kinds import arrow_type, kind_of
from tistream.read.cursor import Position
from tistream_changefeed.core.failure import failed
from tistream_changefeed.rows.net import TableNet
from tistream_changefeed.sinks.iceberg.field_types import converted
from tistream_changefeed.sinks.iceberg.kept.lake_table import LakeTable
from tistream_changefeed.sinks.iceberg.key_ranges import merged, rewrites
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_files import key_range, read_file
from tistream_changefeed.sinks.iceberg.lake_rows import replaced_keys, table_rows
from tistream_changefeed.sinks.iceberg.lake_tables import LakeTables


def key_names(nets: Sequence[TableNet]) -> list[str]:
    """The names of the key columns of a table with this net change. Raises FeedFailed if it has no key."""
    keys = [column.name for column in nets[-1].handle]
    if not keys:
        raise failed("encode", ".".join(nets[-1].version.name), "the table has no primary key and no unique key "
                     "that is NOT NULL: only mode=changelog has its rows")  # fmt: skip
    return keys


class MirroredRows:
    """Writes rows into the tables themselves. Every call may raise FeedFailed."""

    def __init__(self, lake: Lake, tables: LakeTables) -> None:
        self._lake, self._tables = lake, tables

    def commit_net(self, table: LakeTable, nets: Sequence[TableNet], at: Position, loaded: bytes | None) -> None:
        """Commit a net change to the mirrored table. All events up to `at` are then in it. `loaded`: while the feed
        loads its initial rows, the highest raw key that the table then has; otherwise None. Raises FeedFailed if the
        table has no key."""
        keys = key_names(nets)
        earlier = not self._tables.is_whole(table)
        deleted = [keys for one in nets for keys in replaced_keys(one, inserts=earlier)]
        puts = pa.concat_tables(
            [table_rows(one.columns, rows, table.schema) for one in nets for rows in (one.updates, one.inserts)]
        )
        self._tables.commit(table, at, self.write(table, keys, deleted, puts), loaded=loaded)

    def write(
        self,
        table: LakeTable,
        keys: Sequence[str],
        deleted: Sequence[pa.Table],
        puts: pa.Table,
        files: Sequence[DataFile] | None = None,
    ) -> list[DataFile]:
        """Write the files that a commit adds when it deletes and inserts rows. Returns the files that it removes.
        `keys`: the names of the key columns. `deleted`: tables with the key columns of the rows that are deleted, or
        replaced by one of `puts`. `files`: the files that may have these rows; None: those of the table."""
        first = keys[0]
        there = self._lake.files(table.table) if files is None else files
        number = table.schema.schema.find_field(first).field_id
        ranges = [key_range(table.table.schema(), one, number) for one in there]
        gone = pa.chunked_array([one[first].combine_chunks() for one in deleted], puts[first].type)
        plan = rewrites(ranges, gone.combine_chunks(), puts[first].combine_chunks())
        filled = table.evolves and bool(table.schema.filled)
        removed = {one.file for one in plan}
        for one in plan:
            rows = puts.slice(0, 0) if one.file is None else self.read(table, there[one.file])
            after = merged(rows, keys, deleted, puts.take(pa.array(one.puts)))
            if not len(one.puts) and after.num_rows == rows.num_rows and not filled:
                removed.remove(one.file)
                continue
            self._tables.write(table, after, None)
        if filled:
            for at in {*range(len(there))} - removed:
                self._tables.write(table, self.read(table, there[at]), None)
            removed |= {*range(len(there))}
        return [file for at, file in enumerate(there) if at in removed]

    def filled(self, table: LakeTable) -> list[DataFile]:
        """Write all files again, if the table's next schema adds columns whose default is the value of existing rows.
        Returns the files that the commit removes: all, or none."""
        if not (table.evolves and table.schema.filled):
            return []
        removed = self._lake.files(table.table)
        for file in removed:
            self._tables.write(table, self.read(table, file), None)
        return removed

    def read(self, table: LakeTable, file: DataFile) -> pa.Table:
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
