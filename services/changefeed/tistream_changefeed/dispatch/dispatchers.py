"""Chooses the topic and the partition rule of each table, and the topics of DDL and resolved messages (TiCDC's
dispatchers). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name
from tistream_changefeed.dispatch.partition_rule import PartitionBy, PartitionRule
from tistream_changefeed.dispatch.topic import TopicExpression

_RENAME = "rename table"


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """One entry of `sink.dispatchers`: the topic and the partition rule of the matching tables."""

    matcher: TableRules
    topic: TopicExpression
    rule: PartitionRule


@dataclass(frozen=True, slots=True)
class Dispatchers:
    """The dispatchers of a feed, of which the first that matches a table is used. The rows of a table that no
    dispatcher matches go to `default_topic`, by the default rule."""

    entries: tuple[Dispatcher, ...]
    default_topic: str

    def of(self, database: str, table: str) -> Dispatcher | None:
        """The dispatcher that a table uses; None if no dispatcher matches."""
        return next((entry for entry in self.entries if entry.matcher.matches(database, table)), None)

    def every(self, names: Sequence[Name]) -> list[Dispatcher | None]:
        """For each of these tables, the dispatcher that it uses; None if no dispatcher matches."""
        out: list[Dispatcher | None] = [None] * len(names)
        left = list(range(len(names)))
        for entry in self.entries:
            chosen = entry.matcher.chosen([names[at] for at in left])
            for at, taken in zip(left, chosen, strict=True):
                out[at] = entry if taken else None
            left = [at for at, taken in zip(left, chosen, strict=True) if not taken]
        return out

    def rule(self, database: str, table: str) -> PartitionRule:
        """The partition rule of a table; the default rule if no dispatcher matches."""
        found = self.of(database, table)
        return PartitionRule() if found is None else found.rule

    @property
    def spread(self) -> bool:
        """Whether the rows of any table may go to several partitions."""
        return any(entry.rule.by is not PartitionBy.TABLE for entry in self.entries)

    def spreads(self, name: Name) -> bool:
        """Whether the rows of a table may go to several partitions. The table "" stands for all tables of a
        database."""
        return not name[1] or self.rule(*name).by is not PartitionBy.TABLE

    def topic(self, database: str, table: str) -> str:
        """The topic of a table's rows; `default_topic` if no dispatcher matches."""
        found = self.of(database, table)
        return self.default_topic if found is None else found.topic.of(database, table)

    def ddl_topics(self, event: DdlEvent) -> list[str]:
        """The topics that a DDL message goes to.

        A DDL of a database goes to the default topic, and one that renames a table to the topic of the old name. A DDL
        that changes several tables goes to the topics of all names that these tables have before or after it.
        """
        if not event.table:
            return [self.default_topic]
        tables = [name for name in event.involved if name[1]] or [(event.database, event.table)]
        if event.action == _RENAME:
            tables = tables[:1]  # (old name, new name)
        return list(dict.fromkeys(self.topic(*name) for name in tables))

    def resolved_topics(self, tables: Iterable[Name]) -> list[str]:
        """The topics whose partitions all get resolved messages while these tables are replicated: the default topic,
        and the topic of each table."""
        names = list(tables)
        topics = (
            self.default_topic if entry is None else entry.topic.of(*name)
            for name, entry in zip(names, self.every(names), strict=True)
        )
        return list(dict.fromkeys([self.default_topic, *topics]))
