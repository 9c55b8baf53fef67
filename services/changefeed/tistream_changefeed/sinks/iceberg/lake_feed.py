"""A feed into Iceberg tables: implements hold.feed.Feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from pyiceberg.catalog import Catalog

from tistream.clock import Clock
from tistream.errors import InvalidRequest
from tistream.schema.visible import TableVersion
from tistream.secrets.references import filled
from tistream.service.ids import random_id
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.config import parts
from tistream_changefeed.config.feed_config import FeedConfig, IcebergConfig
from tistream_changefeed.config.listed import refused
from tistream_changefeed.config.parse import parse_feed
from tistream_changefeed.config.plan import FeedPlan, PlannedTable, check_filters, included_tables, table_warnings
from tistream_changefeed.core.shard import Order
from tistream_changefeed.dead_letters.skips import SkippedEvents
from tistream_changefeed.hold.feed import Allowed, Looked
from tistream_changefeed.hold.sink import Pipeline, Sink
from tistream_changefeed.sinks.allowed import storage_url
from tistream_changefeed.sinks.iceberg.catalogs.address import check_address, opened_address
from tistream_changefeed.sinks.iceberg.catalogs.opened import open_catalog, waiting
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_pipeline import LakePipeline
from tistream_changefeed.sinks.iceberg.lake_sink import LakeSink
from tistream_changefeed.sinks.iceberg.table_schema import Shape
from tistream_changefeed.sinks.iceberg.target import LakeTarget
from tistream_changefeed.sinks.iceberg.upkeep import Keeping
from tistream_changefeed.sinks.kafka.feed_settings import LETTER_BYTES, check_no_secrets

_SHAPES: dict[str, tuple[Shape, ...]] = {"changelog": ("changes",), "upsert": ("table",), "both": ("changes", "table")}
_SECRETS = {
    "token": "token",
    "credential": "credential",
    "access_key": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
}


@dataclass(frozen=True, slots=True)
class LakeFeed:
    """A feed into Iceberg tables, built from its sink URI and configuration: implements hold.feed.Feed."""

    config: FeedConfig
    iceberg: IcebergConfig
    target: LakeTarget
    warnings: tuple[str, ...]
    pipeline: LakePipeline

    def check_allowed(self, allowed: Allowed) -> None:
        """Check that the operator allows the URL of the warehouse, and the catalog's host, or its file if it is SQLite.
        Raises TargetNotAllowed."""
        storage_url(self.iceberg.warehouse, allowed.file_urls)
        check_address(self.iceberg.catalog_type, self.iceberg.catalog_uri, allowed)

    def plan(self, tables: Sequence[TableVersion]) -> FeedPlan:
        """Plan the Iceberg tables and columns for the tables that exist. Raises InvalidRequest if the rules
        include no table, a filter does not fit a table, or two tables would be written to one."""
        included = included_tables(self.config, tables)
        planned: list[PlannedTable] = []
        owners: dict[str, str] = {}
        for version in included.sent:
            try:
                check_filters(self.pipeline.filter, version)
            except InvalidRequest as error:
                raise refused(str(error)) from None
            deltas: tuple[Shape, ...] = ("delta",) if self.target.delta_share else ()
            shapes = (*self.target.shapes, *deltas)
            names = [".".join(self.target.identifier(version.name, shape)) for shape in shapes]
            own = ".".join(version.name)
            for name in names:
                if owners.setdefault(name, own) != own:
                    raise refused(f"two tables would be written to {name}, {owners[name]} and {own}: put {{database}} "
                                  "into the namespace, or leave one of them out by filter.rules")  # fmt: skip
            columns = tuple(column.name for column in version.table.visible_columns)
            planned.append(PlannedTable(*version.name, ", ".join(names), "", columns))
        return FeedPlan(tuple(planned), {}, tuple(table_warnings(self.config, included)), included.left_out)

    def look(self, planned: FeedPlan, values: Mapping[str, str], allowed: Allowed, answer_s: float) -> Looked:
        """Connect to the catalog, and try to read the first planned table, which need not exist. Creates nothing.
        Raises FeedFailed."""
        lake = self.lake(values, allowed, answer_s)
        try:
            for table in planned.tables:
                lake.load(tuple(table.topic.split(", ")[0].split(".")))
                break
        finally:
            lake.close()
        return Looked()

    def sinks(self, order: Order, clock: Clock, values: Mapping[str, str], allowed: Allowed) -> Callable[[], Sink]:
        """Return a function that makes a sink for the feed's shard. `values`: the values of the feed's secrets by
        name."""
        return lambda: LakeSink(self.target, self.lake(values, allowed), order, clock, random_id)

    def pipeline_of(self, order: Order, values: Mapping[str, str]) -> Pipeline:  # noqa: ARG002
        """The pipeline of the feed, whatever the arguments."""
        return self.pipeline

    def lake(self, values: Mapping[str, str], allowed: Allowed, answer_s: float | None = None) -> Lake:
        """Build the client of the feed's catalog; it connects at the first call. `values`: the values of the feed's
        secrets by name. `answer_s`: seconds to wait for one answer; None: as long as its libraries do. Raises
        TargetNotAllowed if the operator does not allow the warehouse or the catalog."""
        place, _, options = storage_url(self.iceberg.warehouse, allowed.file_urls).partition("?")
        properties: dict[str, Any] = {
            "type": self.iceberg.catalog_type,
            "uri": opened_address(self.iceberg.catalog_type, self.iceberg.catalog_uri, values, allowed),
            "warehouse": place,
            **{f"s3.{name}": value for name, value in parse_qsl(options)},
        }
        for name, key in _SECRETS.items():
            text = getattr(self.iceberg, name)
            if text is not None:
                properties[key] = filled(text, values)

        name = self.iceberg.catalog
        if self.iceberg.catalog_type == "rest":  # pyiceberg cuts its name off a namespace that begins with it
            name = f"rest:{name}"

        if answer_s is not None:
            properties |= waiting(properties["uri"], answer_s)

        def connect() -> Catalog:
            return open_catalog(self.iceberg.catalog_type, name, properties)

        def check(url: str) -> object:
            return storage_url(url, allowed.file_urls)

        return Lake(connect, self.target.where, place, self.target.keeping, check)


def lake_feed(sink_uri: str, document: Mapping[str, Any], skips: Sequence[Skip] = ()) -> LakeFeed:
    """Build the feed that a sink URI and a configuration describe. `skips`: the events that become dead letters. Raises
    InvalidRequest."""
    found = parse_feed(sink_uri, document)
    check_no_secrets(found)
    iceberg = found.config.iceberg
    assert iceberg is not None
    target = LakeTarget(
        f"iceberg://{iceberg.catalog}",
        iceberg.namespace,
        _SHAPES[iceberg.mode],
        iceberg.flush_interval_ms,
        iceberg.file_size,
        Keeping(iceberg.keep_snapshots, iceberg.keep_hours),
        iceberg.delta_share,
        iceberg.snapshot == "now",
    )
    pipeline = LakePipeline(
        parts.feed_filter(found.config),
        parts.error_rules(found.config),
        iceberg.snapshot == "now",
        "table" in target.shapes,
        SkippedEvents(tuple(skips), "", LETTER_BYTES),
    )
    return LakeFeed(found.config, iceberg, target, found.warnings, pipeline)
