"""Builds a feed into Kafka that can run, from a sink URI and a configuration. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tistream.errors import InvalidRequest
from tistream.secrets import references
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.config import parts
from tistream_changefeed.config.feed_config import FeedConfig, KafkaConfig, ProtocolConfig
from tistream_changefeed.config.parse import ParsedFeed, parse_feed
from tistream_changefeed.dead_letters.skips import SkippedEvents
from tistream_changefeed.dispatch.dispatchers import Dispatchers
from tistream_changefeed.dispatch.ownership import WHOLE, Ownership
from tistream_changefeed.filters.column_selector import ColumnSelector
from tistream_changefeed.filters.feed_filter import FeedFilter
from tistream_changefeed.filters.needed_columns import NeededColumns
from tistream_changefeed.pipeline import FeedPipeline, Framing
from tistream_changefeed.protocols.avro.encoder import AvroEncoder, SchemaIds
from tistream_changefeed.protocols.avro.options import AvroOptions
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.debezium.encoder import DebeziumEncoder
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.limits import ClaimCheck, Limit
from tistream_changefeed.protocols.messages import Encoder
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.protocols.simple.bootstraps import BootstrapRule
from tistream_changefeed.protocols.simple.encoder import SimpleEncoder
from tistream_changefeed.registry.address import host_of
from tistream_changefeed.schema_messages import SchemaMessages
from tistream_changefeed.sinks.kafka.security import KafkaSecurity
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.table_errors.rules import ErrorRules

LETTER_BYTES = 64 << 10
_LETTER_HEAD = 200  # bytes that a broker and a client add to a letter


@dataclass(frozen=True, slots=True)
class RunnableFeed:
    """A feed that can run: its configuration, the brokers and the topic that it writes to, and warnings for its
    user."""

    config: FeedConfig
    target: KafkaTarget
    warnings: tuple[str, ...]
    _routes: Dispatchers
    _filter: FeedFilter
    _selectors: Sequence[ColumnSelector]
    _errors: ErrorRules
    _skips: tuple[Skip, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every `host:port` that the feed connects to."""
        registry = self.config.protocol.schema_registry
        return self.target.brokers if registry is None else (*self.target.brokers, host_of(registry))

    @property
    def claim_check(self) -> str | None:
        """The URL at which large messages are stored; None if the feed stores none."""
        large = self.config.kafka.large
        return large.claim_check_storage_uri if large.option == "claim-check" else None

    def pipeline(
        self, registry: SchemaIds | None = None, owner: str = "", ownership: Ownership = WHOLE
    ) -> FeedPipeline:
        """Build the pipeline that encodes the messages of one shard, which writes the partitions of `ownership`.
        `registry` is the client of `sink.schema-registry`, which avro needs. `owner` names the feed and its tenant; the
        names of claim-check files are derived from it."""
        config, large, location = self.config, self.config.kafka.large, self.claim_check
        limit = Limit(
            config.kafka.max_message_bytes,
            handle_key_only=large.option == "handle-key-only",
            claim_check=None
            if location is None
            else ClaimCheck(location.rstrip("/"), owner.encode(), large.claim_check_raw_value),
            compression=large.compression,
        )
        encoder, framing = _encoder(config, limit, self._routes.topic, registry)
        schemas = None
        if isinstance(encoder, SimpleEncoder):
            schemas = SchemaMessages.by(_bootstrap_rule(config.protocol), encoder.bootstrap)
        splitting = parts.splitting(config, self._routes)
        needed = None
        if self._selectors:
            deciding = (config.column_selectors, config.filter, config.dispatchers, config.split_unique_updates)
            text = repr((*deciding, config.raw_changes))
            needed = NeededColumns(text, self._selectors, self._filter, self._routes, splitting)
        return FeedPipeline(
            encoder,
            self._filter,
            self._selectors,
            self._routes,
            splitting,
            limit,
            framing,
            schemas,
            SkippedEvents(
                self._skips, f"{config.kafka.topic}-dead-letter", min(LETTER_BYTES, limit.bytes_max - _LETTER_HEAD)
            ),
            self._errors,
            ownership,
            needed,
            encoder.admin if config.admin_events and isinstance(encoder, OpenProtocol) else None,
        )


def parsed(sink_uri: str, document: Mapping[str, Any], skips: Sequence[Skip] = ()) -> RunnableFeed:
    """Parse a sink URI of Kafka and a configuration. `skips` are the events that a person has named to be left out.
    Raises InvalidRequest, which names the invalid or unsupported key, and never a secret."""
    found = parse_feed(sink_uri, document)
    check_no_secrets(found)
    config = found.config
    if not config.kafka.brokers:
        raise _refused("the feed does not write into Kafka")
    _check_supported(config.kafka)
    if config.protocol.schema_registry is not None:
        host_of(config.protocol.schema_registry)
    return RunnableFeed(
        config,
        _target(config),
        (*found.warnings, *_unused(config.kafka)),
        parts.dispatchers(config),
        parts.feed_filter(config),
        parts.column_selectors(config),
        parts.error_rules(config),
        tuple(skips),
    )


def check_no_secrets(found: ParsedFeed) -> None:
    """Check that a configuration has no secrets in clear text. Raises InvalidRequest."""
    if found.secrets:
        name = sorted(found.secrets)[0]
        raise _refused(
            f"{name} would be stored in clear: put it with `tistream secret put`, and write {name}=${{secret:NAME}}"
        )


def without_secrets(feed_id: str, sink_uri: str, document: Mapping[str, Any]) -> ParsedFeed:
    """Parse a feed, and replace passwords and private keys in clear text by references in `sink_uri` and `document`.
    `secrets` of the result maps the names in the references to the values, which the caller stores as secrets of the
    tenant. Raises InvalidRequest, which never contains a secret."""
    return parse_feed(sink_uri, document, f"{references.of_feed(feed_id)}.")


def _check_supported(kafka: KafkaConfig) -> None:
    """Check that the Kafka sink supports the configuration. Raises InvalidRequest."""
    if kafka.insecure_skip_verify:
        raise _refused("insecure-skip-verify is not supported: put the authority of the brokers into a secret, as ca")


def _unused(kafka: KafkaConfig) -> tuple[str, ...]:
    """Warnings of settings that are accepted and change nothing."""
    if kafka.required_acks == -1:
        return ()
    return (f"required-acks = {kafka.required_acks} is accepted and changes nothing: a feed waits for all replicas",)


def _target(config: FeedConfig) -> KafkaTarget:
    kafka = config.kafka
    return KafkaTarget(
        kafka.brokers,
        kafka.topic,
        kafka.partition_num,
        kafka.replication_factor,
        kafka.auto_create_topic,
        kafka.max_message_bytes,
        kafka.compression,
        config.delivery,
        KafkaSecurity(
            kafka.enable_tls or kafka.ca is not None or kafka.cert is not None,
            kafka.ca,
            kafka.cert,
            kafka.key,
            kafka.sasl_user,
            kafka.sasl_password,
            kafka.sasl_mechanism or "PLAIN",
        ),
    )


def _encoder(
    config: FeedConfig, limit: Limit, topic_of: Callable[[str, str], str], registry: SchemaIds | None
) -> tuple[Encoder, Framing | None]:
    protocol = config.protocol
    if protocol.protocol == "open-protocol":
        opened = OpenOptions(
            only_output_updated_columns=protocol.only_output_updated_columns,
            delete_only_output_handle_key_columns=protocol.delete_only_output_handle_key_columns,
            output_old_value=protocol.output_old_value,
            faults=config.compatible,
            limit=limit,
        )
        return OpenProtocol(opened), Framing(protocol.max_batch_size, limit.bytes_max)
    if protocol.protocol == "canal-json":
        canal = CanalOptions(
            enable_tidb_extension=protocol.enable_tidb_extension,
            content_compatible=protocol.content_compatible,
            only_output_updated_columns=protocol.only_output_updated_columns,
            delete_only_output_handle_key_columns=protocol.delete_only_output_handle_key_columns,
            output_row_key=protocol.output_row_key,
            faults=config.compatible,
            limit=limit,
        )
        return CanalJson(canal), None
    if protocol.protocol == "debezium":
        options = DebeziumOptions(
            debezium_disable_schema=protocol.debezium_disable_schema,
            enable_tidb_extension=protocol.enable_tidb_extension,
            output_old_value=protocol.output_old_value,
            compatible=config.compatible,
        )
        return DebeziumEncoder(options), None
    if protocol.protocol == "simple":
        return SimpleEncoder(limit=limit), None
    assert registry is not None, "avro has a registry"
    avro = AvroOptions(
        topic_of,
        decimal_handling_mode=protocol.avro_decimal_handling_mode,
        bigint_unsigned_handling_mode=protocol.avro_bigint_unsigned_handling_mode,
        enable_tidb_extension=protocol.enable_tidb_extension,
    )
    return AvroEncoder(avro, registry), None


def _bootstrap_rule(protocol: ProtocolConfig) -> BootstrapRule:
    return BootstrapRule(
        protocol.send_bootstrap_interval_in_sec * 1000,
        protocol.send_bootstrap_in_msg_count,
        protocol.send_bootstrap_to_all_partition,
        protocol.send_all_bootstrap_at_start,
    )


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(f"sink_uri or config: {reason}", {"parameter": "sink_uri"})
