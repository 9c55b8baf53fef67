"""A feed into object storage: implements hold.feed.Feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tistream.clock import Clock
from tistream.errors import InvalidRequest, NotFoundYet, RetryableError
from tistream.schema.visible import TableVersion
from tistream.secrets.references import filled
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import S3Access, open_existing, open_objects
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.config import parts
from tistream_changefeed.config.feed_config import FeedConfig, StorageConfig
from tistream_changefeed.config.listed import refused
from tistream_changefeed.config.parse import parse_feed
from tistream_changefeed.config.plan import FeedPlan, PlannedTable, check_filters, included_tables, table_warnings
from tistream_changefeed.core.failure import retry
from tistream_changefeed.core.shard import Order
from tistream_changefeed.dead_letters.skips import NO_SKIPS, SkippedEvents
from tistream_changefeed.filters.column_selector import selector_of
from tistream_changefeed.hold.feed import Allowed, Looked
from tistream_changefeed.hold.sink import Pipeline, Sink
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.csv.encoder import CsvEncoder
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.limits import Limit
from tistream_changefeed.rows.split import by_unique_index, never
from tistream_changefeed.sinks.allowed import storage_url
from tistream_changefeed.sinks.kafka.feed_settings import LETTER_BYTES
from tistream_changefeed.sinks.storage.formats import FileFormat, LinesFormat, ParquetFormat
from tistream_changefeed.sinks.storage.paths import METADATA, Layout
from tistream_changefeed.sinks.storage.pipeline import StoragePipeline
from tistream_changefeed.sinks.storage.root import SinkRoot
from tistream_changefeed.sinks.storage.storage_sink import StorageSink
from tistream_changefeed.sinks.storage.target import StorageTarget

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class StorageFeed:
    """A feed into object storage that can run: its configuration, and warnings for its user."""

    config: FeedConfig
    storage: StorageConfig
    target: StorageTarget
    warnings: tuple[str, ...]
    skips: SkippedEvents = NO_SKIPS

    def check_allowed(self, allowed: Allowed) -> None:
        """Check that the operator allows the URL of the files. Raises TargetNotAllowed."""
        storage_url(self.storage.url, allowed.file_urls)

    def plan(self, tables: Sequence[TableVersion]) -> FeedPlan:
        """Plan the directories and columns for the tables that exist. Raises InvalidRequest if a filter or selector
        does not fit a table."""
        included = included_tables(self.config, tables)
        chosen, selectors = parts.feed_filter(self.config), parts.column_selectors(self.config)
        planned: list[PlannedTable] = []
        for version in included.sent:
            check_filters(chosen, version)
            selector = selector_of(selectors, version)
            columns = version.table.visible_columns if selector is None else selector.sent(version.table)
            directory = "/".join((self.storage.url, *version.name))
            planned.append(PlannedTable(*version.name, directory, "", tuple(column.name for column in columns)))
        return FeedPlan(tuple(planned), {}, tuple(table_warnings(self.config, included)), included.left_out)

    def look(self, planned: FeedPlan, values: Mapping[str, str], allowed: Allowed, answer_s: float) -> Looked:  # noqa: ARG002
        """Check that the object store answers, and warn if another feed may write to this place. Creates nothing.
        Raises FeedFailed."""
        try:
            self._objects(values, allowed, partial(open_existing, answer_s=answer_s)).head(METADATA)
        except (NotFoundYet, InvalidRequest):  # a directory is created when the feed begins
            return Looked()
        except RetryableError as error:
            raise retry("sink", self.storage.url, str(error)) from error
        return Looked(
            warnings=[f"{self.storage.url}/{METADATA} exists: if another feed has written it, this one fails"]
        )

    def sinks(self, order: Order, clock: Clock, values: Mapping[str, str], allowed: Allowed) -> Callable[[], Sink]:
        """Return a function that makes a sink for the shard in `order`. `values`: the values of the feed's secrets by
        name."""

        def new_sink() -> Sink:
            root = SinkRoot(self._objects(values, allowed, open_objects), self.storage.url, self.target.layout)
            return StorageSink(self.target, root, order, clock)

        return new_sink

    def root(self, values: Mapping[str, str], allowed: Allowed) -> SinkRoot:
        """Open the feed's files for reading. `values`: the values of the feed's secrets by name."""
        return SinkRoot(self._objects(values, allowed, open_existing), self.storage.url, self.target.layout)

    def pipeline_of(self, order: Order, values: Mapping[str, str]) -> Pipeline:  # noqa: ARG002
        """The pipeline of the feed, whatever the arguments."""
        return self.pipeline()

    def pipeline(self) -> StoragePipeline:
        """The pipeline of the feed."""
        return StoragePipeline(
            self.target,
            parts.feed_filter(self.config),
            parts.column_selectors(self.config),
            never if self.config.raw_changes else by_unique_index,
            parts.error_rules(self.config),
            self.skips,
        )

    def _objects(
        self, values: Mapping[str, str], allowed: Allowed, opening: Callable[[str, S3Access | None], ObjectStore]
    ) -> ObjectStore:
        url, storage, access = storage_url(self.storage.url, allowed.file_urls), self.storage, None
        if storage.access_key is not None and storage.secret_access_key is not None:
            access = S3Access(filled(storage.access_key, values), filled(storage.secret_access_key, values))
        return opening(url, access)


def storage_feed(sink_uri: str, document: Mapping[str, Any], skips: Sequence[Skip] = ()) -> StorageFeed:
    """Build the feed that a sink URI of object storage and a configuration describe. `skips`: the events that become
    dead letters. Raises InvalidRequest, which names the invalid or unsupported key, and never a secret."""
    found = parse_feed(sink_uri, document)
    if found.secrets:
        name = sorted(found.secrets)[0]
        raise refused(
            f"{name} would be stored in clear: put it with `tistream secret put`, and write {name}=${{secret:NAME}}"
        )
    config, storage = found.config, found.config.storage
    assert storage is not None
    form = _format(config, storage)
    layout = Layout(
        form.suffix,
        storage.date_separator,
        storage.enable_partition_separator,
        storage.file_index_digit,
        storage.layout == "window",
    )
    target = StorageTarget(
        storage.url, form, layout, storage.flush_interval_ms, storage.file_size, storage.output_column_id
    )
    for build in (parts.feed_filter, parts.column_selectors, parts.error_rules):
        build(config)  # raises InvalidRequest for invalid rules
    return StorageFeed(config, storage, target, found.warnings, SkippedEvents(tuple(skips), "", LETTER_BYTES))


def _format(config: FeedConfig, storage: StorageConfig) -> FileFormat:
    if storage.format == "parquet":
        return ParquetFormat()
    if storage.format == "csv":
        try:
            options = CsvOptions(**storage.csv.model_dump(), terminator=storage.terminator)
        except ValueError as error:
            raise refused(f"sink.csv: {error}") from None
        return LinesFormat(CsvEncoder(options), ".csv", b"")
    protocol = config.protocol
    canal = CanalOptions(
        enable_tidb_extension=protocol.enable_tidb_extension,
        content_compatible=protocol.content_compatible,
        only_output_updated_columns=protocol.only_output_updated_columns,
        delete_only_output_handle_key_columns=protocol.delete_only_output_handle_key_columns,
        limit=Limit(_NO_LIMIT),
    )
    return LinesFormat(CanalJson(canal), ".json", storage.terminator.encode())
