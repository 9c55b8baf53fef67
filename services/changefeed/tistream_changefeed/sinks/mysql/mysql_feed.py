"""A feed into MySQL, MariaDB or TiDB: implements hold.feed.Feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tistream.clock import Clock
from tistream.errors import InvalidRequest
from tistream.schema.visible import TableVersion
from tistream.service.ids import random_id
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.config import parts
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.kinds import scheme_of
from tistream_changefeed.config.listed import refused
from tistream_changefeed.config.parse import parse_feed
from tistream_changefeed.config.plan import (
    FeedPlan,
    PlannedTable,
    check_filters,
    included_tables,
    table_warnings,
)
from tistream_changefeed.core.shard import Order
from tistream_changefeed.core.sync_points import SyncPoints
from tistream_changefeed.dead_letters.skips import SkippedEvents
from tistream_changefeed.dispatch.table_shards import TableShard
from tistream_changefeed.hold.feed import Allowed, Looked
from tistream_changefeed.hold.sink import Pipeline, Sink
from tistream_changefeed.sinks.allowed import check_hosts
from tistream_changefeed.sinks.kafka.feed_settings import LETTER_BYTES, check_no_secrets
from tistream_changefeed.sinks.mysql.connection import connected
from tistream_changefeed.sinks.mysql.mysql_pipeline import MySqlPipeline
from tistream_changefeed.sinks.mysql.mysql_sink import MySqlSink
from tistream_changefeed.sinks.mysql.target import MySqlServer, server_of


@dataclass(frozen=True, slots=True)
class MySqlFeed:
    """A feed into a server that can run."""

    config: FeedConfig
    server: MySqlServer
    warnings: tuple[str, ...]
    pipeline: MySqlPipeline

    def check_allowed(self, allowed: Allowed) -> None:
        """Implement Feed.check_allowed."""
        check_hosts([self.server.address], allowed.hosts)

    def plan(self, tables: Sequence[TableVersion]) -> FeedPlan:
        """Implement Feed.plan."""
        included = included_tables(self.config, tables)
        for version in included.sent:
            try:
                check_filters(self.pipeline.filter, version)
            except InvalidRequest as error:
                raise refused(str(error)) from None
        planned = tuple(
            PlannedTable(*one.name, "", "", tuple(column.name for column in one.table.visible_columns))
            for one in included.sent
        )
        warnings = tuple(table_warnings(self.config, included))
        return FeedPlan(planned, {}, warnings, included.left_out)

    def look(self, planned: FeedPlan, values: Mapping[str, str], allowed: Allowed, answer_s: float) -> Looked:  # noqa: ARG002
        """Implement Feed.look: connect to the server."""
        with connected(self.server.with_secrets(values), max(1, int(answer_s))):
            return Looked()

    def sinks(self, order: Order, clock: Clock, values: Mapping[str, str], allowed: Allowed) -> Callable[[], Sink]:  # noqa: ARG002
        """Implement Feed.sinks."""
        server = self.server.with_secrets(values)
        return lambda: MySqlSink(server, order, clock, random_id())

    def pipeline_of(self, order: Order, values: Mapping[str, str]) -> Pipeline:  # noqa: ARG002
        """Implement Feed.pipeline_of."""
        return replace(self.pipeline, shard=TableShard(order.shard, order.shards))


def mysql_feed(sink_uri: str, document: Mapping[str, Any], skips: Sequence[Skip]) -> MySqlFeed:
    """Parse a sink URI and a configuration. Raises InvalidRequest."""
    found = parse_feed(sink_uri, document)
    check_no_secrets(found)
    assert found.config.mysql is not None
    pipeline = MySqlPipeline(
        parts.feed_filter(found.config),
        parts.error_rules(found.config),
        SkippedEvents(tuple(skips), "", LETTER_BYTES),
        found.config.mysql.snapshot == "now",
        SyncPoints(found.config.mysql.sync_interval_ms) if found.config.mysql.sync_points else None,
    )
    return MySqlFeed(found.config, server_of(found.config.mysql, scheme_of(sink_uri)), found.warnings, pipeline)
