"""Builds the filter, the dispatchers (rules for topics and partitions), the column selectors and the rule for split
updates of a feed from its configuration. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.errors import InvalidRequest
from tistream.filters.expression import Expression
from tistream.rules.column_rules import ColumnRules
from tistream.rules.table_rules import TableRules
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.config.feed_config import EventFilterConfig, FeedConfig
from tistream_changefeed.config.listed import refused
from tistream_changefeed.dispatch.dispatchers import Dispatcher, Dispatchers
from tistream_changefeed.dispatch.partition_rule import PartitionBy, PartitionRule, UnfitTable
from tistream_changefeed.dispatch.topic import TopicExpression
from tistream_changefeed.filters.column_selector import ColumnSelector
from tistream_changefeed.filters.event_filter import EventFilter, parse_sql
from tistream_changefeed.filters.event_kinds import parse_kinds
from tistream_changefeed.filters.feed_filter import FeedFilter
from tistream_changefeed.rows.split import Splitting, by_handle, by_unique_index, never
from tistream_changefeed.table_errors.rules import ErrorRules, TableErrors


def feed_filter(config: FeedConfig) -> FeedFilter:
    """Build the filter of the feed. Raises InvalidRequest for an invalid rule, kind of event or expression."""
    chosen = config.filter
    try:
        return FeedFilter(
            TableRules.parse(chosen.rules, case_sensitive=chosen.case_sensitive),
            tuple(_event_filter(one, chosen.case_sensitive) for one in chosen.event_filters),
            frozenset(chosen.ignore_txn_start_ts),
            chosen.force_replicate,
        )
    except InvalidRequest as error:
        raise refused(f"filter: {error}") from None


def _event_filter(one: EventFilterConfig, case_sensitive: bool) -> EventFilter:
    def expression(text: str) -> Expression | None:
        return Expression.parse(text) if text.strip() else None

    return EventFilter(
        TableRules.parse(one.matcher, case_sensitive=case_sensitive),
        parse_kinds(one.ignore_event),
        parse_sql(one.ignore_sql),
        expression(one.ignore_insert_value_expr),
        expression(one.ignore_update_old_value_expr),
        expression(one.ignore_update_new_value_expr),
        expression(one.ignore_delete_value_expr),
        one.ignore_update_only_columns,
    )


def dispatchers(config: FeedConfig) -> Dispatchers:
    """Build the rules for the topics and partitions of the feed. Raises InvalidRequest."""
    whole = config.protocol.protocol == "avro"
    entries: list[Dispatcher] = []
    for number, one in enumerate(config.dispatchers, 1):
        try:
            matcher = TableRules.parse(one.matcher, case_sensitive=config.filter.case_sensitive)
            topic = TopicExpression.parse(one.topic, whole=whole) if one.topic else TopicExpression(config.kafka.topic)
            entries.append(Dispatcher(matcher, topic, PartitionRule.named(one.partition, one.index, one.columns)))
        except InvalidRequest as error:
            raise refused(f"sink.dispatchers[{number}]: {error}") from None
    return Dispatchers(tuple(entries), config.kafka.topic)


def column_selectors(config: FeedConfig) -> tuple[ColumnSelector, ...]:
    """Build the column selectors of the feed. Raises InvalidRequest."""
    try:
        return tuple(
            ColumnSelector(
                TableRules.parse(one.matcher, case_sensitive=config.filter.case_sensitive),
                ColumnRules.parse(one.columns),
            )
            for one in config.column_selectors
        )
    except InvalidRequest as error:
        raise refused(f"sink.column-selectors: {error}") from None


def error_rules(config: FeedConfig) -> ErrorRules:
    """Build the rules by which errors of tables are handled. Raises InvalidRequest."""
    try:
        cased, feeds = config.filter.case_sensitive, config.on_table_error
        entries = tuple(
            TableErrors(
                TableRules.parse(one.matcher, case_sensitive=cased), one.on_row_error, one.on_table_error or feeds
            )
            for one in config.tables
        )
        return ErrorRules(entries, feeds)
    except InvalidRequest as error:
        raise refused(f"tistream.tables: {error}") from None


def splitting(config: FeedConfig, routes: Dispatchers) -> Splitting:
    """Choose the rule by which updates are split into a delete and an insert. With `output-raw-change-event` no update
    is split. Otherwise the configuration says whether updates of any unique index are split, or only updates of the
    handle key and of the index that the partition rule hashes."""
    if config.raw_changes:
        return never
    if config.split_unique_updates:
        return by_unique_index

    def by_handle_and_index(version: TableVersion) -> Sequence[Column]:
        rule = routes.rule(*version.name)
        if rule.by is not PartitionBy.INDEX or rule.index is None:
            return by_handle(version)
        return tuple(dict.fromkeys([*by_handle(version), *_hashed(rule, version)]))

    return by_handle_and_index


def _hashed(rule: PartitionRule, version: TableVersion) -> Sequence[Column]:
    try:
        return rule.hashed(version)
    except UnfitTable:  # the dispatcher reports it for the rows of the table
        return ()
