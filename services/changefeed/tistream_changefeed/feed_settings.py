"""A feed's sink URI and configuration, as what runs it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tistream.errors import InvalidRequest
from tistream_changefeed.config import parts
from tistream_changefeed.config.feed_config import FeedConfig, KafkaConfig, ProtocolConfig
from tistream_changefeed.config.parse import parse_feed
from tistream_changefeed.hold.sink import Pipeline
from tistream_changefeed.pipeline import FeedPipeline, Framing
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.debezium.encoder import DebeziumEncoder
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.limits import Limit
from tistream_changefeed.protocols.messages import Encoder
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.protocols.simple.bootstraps import BootstrapRule
from tistream_changefeed.protocols.simple.encoder import SimpleEncoder
from tistream_changefeed.schema_messages import SchemaMessages
from tistream_changefeed.sinks.kafka.security import KafkaSecurity
from tistream_changefeed.sinks.kafka.target import KafkaTarget

_PROTOCOLS = ("open-protocol", "canal-json", "debezium", "simple")


@dataclass(frozen=True, slots=True)
class RunnableFeed:
    """What runs a feed: its configuration, its target, the pipeline of its events, and warnings for its user."""

    config: FeedConfig
    target: KafkaTarget
    pipeline: Pipeline
    warnings: tuple[str, ...]


def parsed(sink_uri: str, document: Mapping[str, Any]) -> RunnableFeed:
    """Parse a sink URI and a configuration. Raises InvalidRequest, which names what is wrong or not supported, and
    never a secret."""
    found = parse_feed(sink_uri, document)
    if found.secrets:
        name = sorted(found.secrets)[0]
        raise _refused(
            f"{name} would be stored in clear: put it with `tistream secret put`, and write {name}=${{secret:NAME}}"
        )
    config = found.config
    _check_supported(config.kafka)
    large = config.kafka.large
    limit = Limit(
        config.kafka.max_message_bytes,
        handle_key_only=large.option == "handle-key-only",
        compression=large.compression,
    )
    encoder, framing = _encoder(config, limit)
    schemas = None
    if isinstance(encoder, SimpleEncoder):
        schemas = SchemaMessages.by(_bootstrap_rule(config.protocol), encoder.bootstrap)
    routes = parts.dispatchers(config)
    pipeline = FeedPipeline(
        encoder,
        parts.feed_filter(config),
        parts.column_selectors(config),
        routes,
        parts.splitting(config, routes),
        framing,
        schemas,
    )
    return RunnableFeed(config, _target(config), pipeline, found.warnings)


def _check_supported(kafka: KafkaConfig) -> None:
    """Refuse what the Kafka sink cannot do yet."""
    if kafka.insecure_skip_verify:
        raise _refused("insecure-skip-verify is not supported: put the authority of the brokers into a secret, as ca")
    if kafka.large.option == "claim-check":
        raise _refused("large-message-handle-option = 'claim-check' is not supported yet: use 'handle-key-only'")


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


def _encoder(config: FeedConfig, limit: Limit) -> tuple[Encoder, Framing | None]:
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
    raise _refused(f"protocol {protocol.protocol} is not supported yet; there are {', '.join(_PROTOCOLS)}")


def _bootstrap_rule(protocol: ProtocolConfig) -> BootstrapRule:
    return BootstrapRule(
        protocol.send_bootstrap_interval_in_sec * 1000,
        protocol.send_bootstrap_in_msg_count,
        protocol.send_bootstrap_to_all_partition,
        protocol.send_all_bootstrap_at_start,
    )


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(f"sink_uri or config: {reason}", {"parameter": "sink_uri"})
