"""Reads the Iceberg tables of a feed, each as it was when it was first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tistream.model.ids import TenantKey
from tistream_changefeed.sinks.iceberg import marks as texts
from tistream_changefeed.sinks.iceberg.kept.lake_table import DROPPED, FIELDS, SINCE, LakeTable, shape_of
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema
from tistream_changefeed.sinks.iceberg.table_schema import parsed
from tistream_changefeed.sinks.iceberg.target import Identifier, set_aside


@dataclass(slots=True)
class LakeThere:
    """The tables of one feed. `check_time` raises Unavailable with this reason if the comparison has taken too long.
    Every call may raise it, and FeedFailed."""

    lake: Lake
    tenant: TenantKey
    check_time: Callable[[str], None]
    _tables: dict[Identifier, LakeTable | None] = field(default_factory=dict)

    def table(self, identifier: Identifier) -> LakeTable | None:
        """The table of a table that exists in TiDB; None if the feed has created none."""
        found = self._loaded(identifier)
        return None if found is None or DROPPED in found.table.properties else found

    def dropped(self, identifier: Identifier, dropped_ts: int) -> LakeTable | None:
        """The table of a table that had this name when it was dropped at `dropped_ts`; None if it is gone."""
        for one in (identifier, set_aside(identifier, dropped_ts)):
            found = self._loaded(one)
            if found is not None and found.table.properties.get(DROPPED) == str(dropped_ts):
                return found
        return None

    def rows(self, table: LakeTable, row_filter: str = "true") -> Iterator[pa.Table]:
        """The rows of a table that a filter in Iceberg's syntax chooses, in parts."""
        kind = arrow_schema(table.schema.schema)
        with self.lake.asking(self.lake.named(table.identifier)):
            for rows in table.table.scan(row_filter).to_arrow_batch_reader():
                self.check_time(f"table {'.'.join(table.identifier)} was not read in time")
                yield pa.Table.from_batches([rows]).cast(kind)

    def _loaded(self, identifier: Identifier) -> LakeTable | None:
        if identifier not in self._tables:
            self.check_time("the catalog did not answer in time")
            table, where = self.lake.load(identifier), self.lake.named(identifier)
            found = None
            if table is not None:
                newest = texts.newest(self.lake.told(table), table.properties, self.tenant, where)
                with self.lake.asking(where):
                    schema = parsed(table.schema(), table.properties.get(FIELDS, "{}"))
                marks = None if newest is None else newest.marks
                found = LakeTable(identifier, shape_of(identifier), table, 0, schema, marks)
            self._tables[identifier] = found
        return self._tables[identifier]


def since_of(table: LakeTable) -> int:
    """The ts from which on a table has the changes of its table in TiDB; 0 if it is not known. A table that the feed
    includes later than others has no earlier ones."""
    text = table.table.properties.get(SINCE, "")
    return int(text) if text.isdecimal() else 0
