"""Reads the progress and the Iceberg tables of a feed for a comparison. A table is read once, and stays as it was
then."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream.schema.visible import Name
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.sinks.iceberg import marks as texts
from tistream_changefeed.sinks.iceberg.kept.known_tables import KnownTables
from tistream_changefeed.sinks.iceberg.kept.lake_table import (
    BASE,
    DELTA,
    DROPPED,
    FIELDS,
    KEYS,
    SINCE,
    SOURCE,
    LakeTable,
    shape_of,
)
from tistream_changefeed.sinks.iceberg.kept.own_table import Stored, stored
from tistream_changefeed.sinks.iceberg.kept.table_versions import newest_version
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema
from tistream_changefeed.sinks.iceberg.mirrored.delta_rows import live, without
from tistream_changefeed.sinks.iceberg.table_schema import parsed
from tistream_changefeed.sinks.iceberg.target import Identifier, delta_of, set_aside


@dataclass(slots=True)
class LakeThere:
    """The tables of one feed. `own`: its own table. `check_time` raises Unavailable with this reason if the comparison
    has taken too long. `moved`: whether a DDL of a window drops or renames the TiDB table whose rows an Iceberg table
    has. Every call may raise Unavailable and FeedFailed."""

    lake: Lake
    tenant: TenantKey
    own: Identifier
    check_time: Callable[[str], None]
    moved: Callable[[Identifier, Window], bool]
    _low_ts: int = 0
    _tables: dict[Identifier, LakeTable | None] = field(default_factory=dict)
    _deltas: dict[Identifier, LakeTable] = field(default_factory=dict)
    _checked: set[Identifier] = field(default_factory=set)

    def progress(self) -> Progress:
        """Read the feed's progress. It must be read before any table."""
        found = self._stored().progress
        if found.load is not None:
            raise Unavailable("the rows with which the feed begins are not loaded yet")
        self._low_ts = found.at.low_ts
        return found

    def table(self, identifier: Identifier, name: Name) -> LakeTable | None:
        """The Iceberg table `identifier`, with the rows of the TiDB table `name`, which exists as of the feed's
        progress; None if the feed has not created it. Raises Unavailable if the feed has dropped or renamed it
        since."""
        found = self._loaded(self._newest(identifier, ".".join(name)))
        if identifier not in self._checked:
            self._check_kept(identifier, found, ".".join(name))
            self._checked.add(identifier)
        return None if found is None or DROPPED in found.table.properties else found

    def dropped(self, identifier: Identifier, dropped_ts: int) -> LakeTable | None:
        """The Iceberg table with the rows of a TiDB table that was dropped at `dropped_ts`. `identifier`: its name
        before the drop; it may have another one now. None if it no longer exists."""
        for one in (identifier, set_aside(identifier, dropped_ts)):
            found = self._loaded(one)
            if found is not None and found.table.properties.get(DROPPED) == str(dropped_ts):
                return found
        return None

    def rows(self, table: LakeTable, row_filter: str = "true") -> Iterator[pa.Table]:
        """Yield the rows of a table, merged with those of its delta, in parts. `row_filter`: a filter in
        Iceberg's syntax; it must not be given for a table with a delta."""
        kind, delta = arrow_schema(table.schema.schema), self._deltas.get(table.identifier)
        base: int | None = None
        with self.lake.asking(self.lake.named(table.identifier)):
            if delta is not None:
                known, fields = delta.table.properties, delta.schema.schema
                base = next((at for one in table.table.snapshots() if str(at := one.snapshot_id) == known[BASE]), None)
                keys = [fields.find_field(one).name for one in json.loads(known.get(KEYS, "[]"))]
                changed = delta.table.scan().to_arrow().cast(arrow_schema(fields))
            for batch in table.table.scan(row_filter, snapshot_id=base).to_arrow_batch_reader():
                self.check_time(f"table {'.'.join(table.identifier)} was not read in time")
                rows = pa.Table.from_batches([batch]).cast(kind)
                yield rows if delta is None else without(rows, keys, changed)
        if delta is not None:
            yield live(changed).select(kind.names).cast(kind)

    def _newest(self, identifier: Identifier, source: str) -> Identifier:
        """The name of the newest version of a table. `source`: the table in TiDB."""

        def known() -> Iterator[tuple[str, Identifier]]:
            own = self.lake.load(self.own)
            yield from KnownTables({} if own is None else own.properties, self.lake.named(self.own))

        return newest_version(identifier, source, self._loaded, known())

    def _stored(self) -> Stored:
        own = self.lake.load(self.own)
        found = None if own is None else stored(self.lake, own, self.tenant, self.own)
        if found is None:
            raise Unavailable("the feed has written nothing yet")
        return found

    def _check_kept(self, identifier: Identifier, found: LakeTable | None, source: str) -> None:
        """Check that the table with this name is still the one that had it as of the progress. `found`: what has the
        name now. `source`: the table in TiDB. If no commit says that it has these rows, a DDL may be in progress, so
        the feed's own table is read again."""
        if found is None or found.marks is None or found.table.properties.get(SOURCE) != source:
            there = self._stored()
            at, begun = there.progress.at, identifier in there.begun(self.lake.named(self.own))
        else:
            at, begun = found.marks.at, False
        later = Window(self._low_ts, max(self._low_ts, at.commit_ts))
        if begun or (later.high > later.low and self.moved(identifier, later)):
            raise Unavailable(f"table {'.'.join(identifier)} was dropped, renamed or created meanwhile: compare again")

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
            if found is not None and found.table.properties.get(DELTA):
                self._read_delta(found)
        return self._tables[identifier]

    def _read_delta(self, found: LakeTable) -> None:
        """Read the delta of a table, and then the table again. `found`: the table. It is changed: it states the delta's
        position. Raises Unavailable if a DDL has come to the table alone."""
        delta = self._loaded(delta_of(found.identifier))
        if delta is None or delta.marks is None or BASE not in delta.table.properties:
            return
        with self.lake.asking(self.lake.named(found.identifier)):
            found.table = found.table.refresh()
            newest = texts.newest(self.lake.told(found.table), found.table.properties, self.tenant, "")
            found.schema = parsed(found.table.schema(), found.table.properties.get(FIELDS, "{}"))
        if DROPPED in delta.table.properties:
            return
        if newest is None or newest.marks.at > delta.marks.at:
            raise Unavailable(f"a DDL is being applied to table {'.'.join(found.identifier)}: compare again")
        found.marks, self._deltas[found.identifier] = delta.marks, delta


def since_of(table: LakeTable) -> int | None:
    """The ts above which an Iceberg table has the changes of its table in TiDB. It is that of the feed, or a later
    one if the feed has included the table later. None if an earlier release has created the table, and stored no
    such ts."""
    text = table.table.properties.get(SINCE, "")
    return int(text) if text.isdecimal() else None
