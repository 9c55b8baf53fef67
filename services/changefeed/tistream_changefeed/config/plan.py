"""Plans a feed for the tables that exist: which tables it would send, and to which topics. Used for `dry_run` and for
the checks at its creation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.config import parts
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.listed import refused
from tistream_changefeed.dispatch.dispatchers import Dispatcher, Dispatchers
from tistream_changefeed.dispatch.partition_rule import PartitionRule
from tistream_changefeed.dispatch.topic import collisions
from tistream_changefeed.filters.column_selector import selector_of
from tistream_changefeed.filters.feed_filter import FeedFilter
from tistream_changefeed.rows.handle_key import eligible, handle_columns

NAMED_MAX = 20  # tables that one warning names
PARTITIONS_DEFAULT = 3  # of a topic that is created
NO_KEY = "no primary key and no unique key that is NOT NULL"


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One table that the feed sends, and the names of its columns that are sent. `topic`: its topic in Kafka, its
    directory, or its Iceberg tables with commas between them; empty for a database. `partition`: the name of its
    partition rule; empty if the sink is not Kafka."""

    database: str
    table: str
    topic: str
    partition: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """The plan of a feed. `topics`: the number of partitions of each topic that the feed writes to, including the
    default topic. `left_out`: the names of the tables that the rules include and that are not sent, because they have
    no handle key."""

    tables: tuple[PlannedTable, ...]
    topics: Mapping[str, int]
    warnings: tuple[str, ...]
    left_out: tuple[Name, ...]


def plan(config: FeedConfig, tables: Sequence[TableVersion], existing: Mapping[str, int] | None = None) -> FeedPlan:
    """Plan a feed. `existing`: the numbers of partitions of the topics that exist; None if they are not known. Raises
    InvalidRequest if the feed cannot work with these tables: one lacks a column or an index that the configuration
    names, a column selector leaves out the key, the rules include no table, or a topic has too few partitions or may
    not be created."""
    chosen, routes, selectors = parts.feed_filter(config), parts.dispatchers(config), parts.column_selectors(config)
    included = included_tables(config, tables)
    sent = included.sent
    found = dict(zip((one.name for one in sent), routes.every([one.name for one in sent]), strict=True))
    planned: list[PlannedTable] = []
    for version in sent:
        entry, selector = found[version.name], selector_of(selectors, version)
        rule = PartitionRule() if entry is None else entry.rule
        try:
            check_filters(chosen, version)
            columns = version.table.visible_columns if selector is None else selector.sent(version.table)
            rule.hashed(version)
        except InvalidRequest as error:
            raise refused(str(error)) from None
        topic = routes.default_topic if entry is None else entry.topic.of(*version.name)
        planned.append(PlannedTable(*version.name, topic, rule.by.value, tuple(column.name for column in columns)))
    topics = {routes.default_topic: 0, **{one.topic: 0 for one in planned}}
    counted = {topic: _partitions(config, topic, existing) for topic in topics}
    warnings = _warnings(config, included, found, routes, counted)
    return FeedPlan(tuple(planned), counted, tuple(warnings), included.left_out)


@dataclass(frozen=True, slots=True)
class IncludedTables:
    """The tables of a tenant, sorted by name: `base` are all, `named` those that the rules include, and `sent` those of
    them that the feed sends."""

    base: Sequence[TableVersion]
    named: Sequence[TableVersion]
    sent: Sequence[TableVersion]

    @property
    def left_out(self) -> tuple[Name, ...]:
        """The names of the included tables that are not sent, because they have no handle key."""
        sent = {one.name for one in self.sent}
        return tuple(one.name for one in self.named if one.name not in sent)


def included_tables(config: FeedConfig, tables: Sequence[TableVersion]) -> IncludedTables:
    """Find out which of `tables`, those that exist, a feed sends. Raises InvalidRequest if tables exist and the
    rules include none of them, unless the configuration permits that."""
    chosen = parts.feed_filter(config)
    base = sorted((one for one in tables if one.head.kind == "table"), key=lambda one: one.name)
    included = chosen.tables.chosen([one.name for one in base])
    named = [one for one, kept in zip(base, included, strict=True) if kept and chosen.includes_name(one.name)]
    if base and not named and not config.allow_no_tables:
        raise refused(
            f"filter.rules include none of the {len(base)} tables that exist now: correct them, or set "
            "allow-no-tables = true under [tistream] if the tables are to come"
        )
    return IncludedTables(base, named, [one for one in named if chosen.without_key or eligible(one.table)])


def check_filters(chosen: FeedFilter, version: TableVersion) -> None:
    """Check that the event filters of a feed can be applied to a table. Raises InvalidRequest."""
    for one in chosen.events:
        if one.matcher.matches(*version.name):
            one.check(version.table)


def table_warnings(config: FeedConfig, included: IncludedTables) -> Iterator[str]:
    """Warnings about the rules and the tables that they include, for any sink."""
    for rule in parts.feed_filter(config).tables.unused([one.name for one in included.base]):
        yield f"rule {rule!r} matches no table that exists now"
    if not included.named:
        yield "the rules include no table that exists now"
    if included.left_out:
        mirrored = config.iceberg is not None and config.iceberg.mode != "changelog"
        yield (
            f"tables that have {NO_KEY} are not sent: {_listed(['.'.join(one) for one in included.left_out])}; add a "
            f"key, or set force-replicate{' and mode=changelog' if mirrored else ''}"
        )


def _partitions(config: FeedConfig, topic: str, existing: Mapping[str, int] | None) -> int:
    """The number of partitions of a topic that the feed writes to. Raises InvalidRequest."""
    wanted, there = config.kafka.partition_num, None if existing is None else existing.get(topic)
    if there is None:
        if existing is not None and not config.kafka.auto_create_topic:
            raise refused(
                f"topic {topic!r} does not exist, and auto-create-topic is false: create the topic, or set it to true"
            )
        return wanted or PARTITIONS_DEFAULT
    if wanted is not None and wanted > there:
        raise refused(
            f"topic {topic!r} has {there} partitions, and partition-num is {wanted}: lower it, or add partitions"
        )
    return wanted or there


def _warnings(
    config: FeedConfig,
    included: IncludedTables,
    found: Mapping[tuple[str, str], Dispatcher | None],
    routes: Dispatchers,
    counted: Mapping[str, int],
) -> list[str]:
    out = list(table_warnings(config, included))
    for number, entry in enumerate(routes.entries, 1):
        if entry not in found.values():
            out.append(f"sink.dispatchers[{number}] is the dispatcher of no table that exists now")
    for number, one in enumerate(config.dispatchers, 1):
        if not PartitionRule.known(one.partition):
            out.append(
                f"sink.dispatchers[{number}]: partition {one.partition!r} is unknown: as in TiCDC it means 'table'"
            )
    keyless = [one for one in included.named if not handle_columns(one.table)]
    if keyless and config.filter.force_replicate:
        shown = _listed([".".join(one.name) for one in keyless])
        out.append(f"tables that have {NO_KEY} have no key in messages: {shown}")
    expressions = [(name, entry.topic) for name, entry in found.items() if entry is not None]
    for topic, sharing in collisions(expressions).items():
        out.append(f"topic {topic!r} is that of several tables: {_listed(['.'.join(name) for name in sharing])}")
    if config.shards > (partitions := max(counted.values())):
        out.append(
            f"tistream.shards = {config.shards}: the {partitions} partitions of a topic keep at most that many busy"
        )
    return out


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"
