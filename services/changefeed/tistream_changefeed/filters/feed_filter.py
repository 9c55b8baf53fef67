"""The filter of a feed: applies table rules, event filters and expressions, in TiCDC's order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Column
from tistream.schema.visible import SYSTEM_SCHEMAS, Name, TableVersion, fold
from tistream_changefeed.filters.event_filter import EventFilter, as_inserts
from tistream_changefeed.rows.handle_key import eligible
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import EventWindow, taken

UNSENT_SCHEMAS = SYSTEM_SCHEMAS | {"tidb_cdc", "lightning_task_info"}


@dataclass(frozen=True, slots=True)
class FeedTables:
    """Selects the tables whose rows a feed reads (implements TableChoice). `without_key`: tables without a handle key
    are included. Two feeds with equal rules have equal FeedTables, so they share the row groups that they read."""

    texts: tuple[str, ...]  # of the rules: they are compared in place of the patterns, because their hashes are kept
    without_key: bool
    rules: TableRules = field(compare=False)

    def chosen(self, versions: Sequence[TableVersion]) -> list[bool]:
        """For each table version, whether the feed may send rows of it."""
        named = self.rules.chosen([version.name for version in versions])
        return [
            bool(one) and fold(version.database) not in UNSENT_SCHEMAS and (self.without_key or eligible(version.table))
            for one, version in zip(named, versions, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """The filter of one feed. `without_key`: tables without a handle key are replicated too (`force-replicate`)."""

    tables: TableRules
    events: tuple[EventFilter, ...] = ()
    start_ts: frozenset[int] = frozenset()  # transactions that are left out
    without_key: bool = False
    _filters: dict[Name, tuple[EventFilter, ...]] = field(default_factory=dict, compare=False)  # cache

    @property
    def read(self) -> FeedTables:
        """The selection of the tables whose rows the feed reads."""
        texts = tuple(f"{rule.text} {rule.database} {rule.table}" for rule in self.tables.rules)
        return FeedTables(texts, self.without_key, self.tables)

    def includes(self, version: TableVersion) -> bool:
        """Whether rows of the table are sent. Only the table's name and keys decide."""
        return (self.without_key or eligible(version.table)) and self.includes_name(version.name)

    def includes_name(self, name: Name) -> bool:
        """Whether the rules include a table of this name."""
        return fold(name[0]) not in UNSENT_SCHEMAS and self.tables.matches(*name)

    def window(self, window: EventWindow) -> EventWindow:
        """Return the events of a window that the feed sends. `window` has the changes as they were committed, before
        updates are split (rows/window.py). Raises InvalidRequest if a table lacks a column that an expression names."""
        rows = [self.rows(batch) for batch in window.rows if self.includes(batch.version)]
        ddls = tuple(ddl for ddl in window.ddls if self.sends(ddl.event))
        return replace(window, rows=tuple(batch for batch in rows if len(batch)), ddls=ddls)

    def rows(self, batch: RowBatch) -> RowBatch:
        """Return the changes of a batch that the feed sends. An update whose old row the sink does not have becomes an
        insert. Call it only for a table that the feed includes."""
        out = np.isin(batch.start_ts, list(self.start_ts)) if self.start_ts else np.zeros(len(batch), dtype=bool)
        fresh = np.zeros(len(batch), dtype=bool)
        for one in self._of(batch.version.name):
            left_out, unknown = one.rows(batch)
            out |= left_out
            fresh |= unknown
        batch = as_inserts(batch, fresh & ~out)
        return taken(batch, np.flatnonzero(~out)) if out.any() else batch

    def columns(self, version: TableVersion) -> list[Column]:
        """The columns whose values decide which changes of the table are sent. Raises InvalidRequest if the table lacks
        a column of an expression."""
        return [column for one in self._of(version.name) for column in one.columns(version.table)]

    def sends(self, event: DdlEvent) -> bool:
        """Whether a DDL event is sent. A DDL of a table is sent if the rules include a name that the table had
        before or after it, and no event filter ignores the DDL for at least one included name. A DDL of a
        database is sent if the rules include any table that the database may have, and no event filter for such
        a table ignores the DDL. DDLs of ignored transactions (`ignore-txn-start-ts`) and of system databases
        are not sent."""
        if event.start_ts in self.start_ts or fold(event.database) in UNSENT_SCHEMAS:
            return False
        if not event.table:
            included = self.tables.matches_schema(event.database)
            return included and not any(
                one.ignores(event) for one in self.events if one.matcher.matches_schema(event.database)
            )
        named = [name for name in event.involved if name[1]] or [(event.database, event.table)]
        names = [name for name in named if self.includes_name(name)]
        return any(not any(one.ignores(event) for one in self._of(name)) for name in names)

    def _of(self, name: Name) -> tuple[EventFilter, ...]:
        if name not in self._filters:
            self._filters[name] = tuple(one for one in self.events if one.matcher.matches(*name))
        return self._filters[name]
