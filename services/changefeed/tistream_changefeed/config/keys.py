"""The keys of TiCDC's configuration file and sink URI that are supported, each with the field of FeedConfig that it
sets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tistream.wire.bulk.changefeeds import SHARDS_MAX

Kind = Literal["flag", "number", "text", "texts", "numbers"]


@dataclass(frozen=True, slots=True)
class Key:
    """A supported key: the path of the field of FeedConfig that it sets, and the kind of its value. Numbers lie between
    `low` and `high`, both inclusive. The value of a key of kind `secret` is replaced by a reference."""

    field: str
    kind: Kind
    low: int = 0
    high: int = 1 << 62
    secret: bool = False
    pem: bool = False  # a PEM text, not the path of a file


_KAFKA = "sink.kafka-config."
_CODEC = "sink.kafka-config.codec-config."
_LARGE = "sink.kafka-config.large-message-handle."

USED: dict[str, Key] = {
    "case-sensitive": Key("filter.case_sensitive", "flag"),
    "force-replicate": Key("filter.force_replicate", "flag"),
    "filter.rules": Key("filter.rules", "texts"),
    "filter.ignore-txn-start-ts": Key("filter.ignore_txn_start_ts", "numbers"),
    "sink.protocol": Key("protocol.protocol", "text"),
    "sink.schema-registry": Key("protocol.schema_registry", "text"),
    "sink.only-output-updated-columns": Key("protocol.only_output_updated_columns", "flag"),
    "sink.delete-only-output-handle-key-columns": Key("protocol.delete_only_output_handle_key_columns", "flag"),
    "sink.content-compatible": Key("protocol.content_compatible", "flag"),
    "sink.debezium-disable-schema": Key("protocol.debezium_disable_schema", "flag"),
    "sink.send-bootstrap-interval-in-sec": Key(
        "protocol.send_bootstrap_interval_in_sec", "number", -(1 << 31), 1 << 31
    ),
    "sink.send-bootstrap-in-msg-count": Key("protocol.send_bootstrap_in_msg_count", "number", -(1 << 31), 1 << 31),
    "sink.send-bootstrap-to-all-partition": Key("protocol.send_bootstrap_to_all_partition", "flag"),
    "sink.send-all-bootstrap-at-start": Key("protocol.send_all_bootstrap_at_start", "flag"),
    _KAFKA + "partition-num": Key("kafka.partition_num", "number", 1, 10_000),
    _KAFKA + "replication-factor": Key("kafka.replication_factor", "number", 1, 100),
    _KAFKA + "auto-create-topic": Key("kafka.auto_create_topic", "flag"),
    _KAFKA + "max-message-bytes": Key("kafka.max_message_bytes", "number", 1_000, 1 << 30),
    _KAFKA + "compression": Key("kafka.compression", "text"),
    _KAFKA + "required-acks": Key("kafka.required_acks", "number", -1, 1),
    _KAFKA + "enable-tls": Key("kafka.enable_tls", "flag"),
    _KAFKA + "insecure-skip-verify": Key("kafka.insecure_skip_verify", "flag"),
    _KAFKA + "ca": Key("kafka.ca", "text", pem=True),
    _KAFKA + "cert": Key("kafka.cert", "text", pem=True),
    _KAFKA + "key": Key("kafka.key", "text", secret=True, pem=True),
    _KAFKA + "sasl-mechanism": Key("kafka.sasl_mechanism", "text"),
    _KAFKA + "sasl-user": Key("kafka.sasl_user", "text"),
    _KAFKA + "sasl-password": Key("kafka.sasl_password", "text", secret=True),
    _KAFKA + "output-raw-change-event": Key("raw_changes", "flag"),
    _CODEC + "enable-tidb-extension": Key("protocol.enable_tidb_extension", "flag"),
    _CODEC + "max-batch-size": Key("protocol.max_batch_size", "number", 1, 10_000),
    _CODEC + "output-row-key": Key("protocol.output_row_key", "flag"),
    _CODEC + "avro-decimal-handling-mode": Key("protocol.avro_decimal_handling_mode", "text"),
    _CODEC + "avro-bigint-unsigned-handling-mode": Key("protocol.avro_bigint_unsigned_handling_mode", "text"),
    _LARGE + "large-message-handle-option": Key("kafka.large.option", "text"),
    _LARGE + "large-message-handle-compression": Key("kafka.large.compression", "text"),
    _LARGE + "claim-check-storage-uri": Key("kafka.large.claim_check_storage_uri", "text"),
    _LARGE + "claim-check-raw-value": Key("kafka.large.claim_check_raw_value", "flag"),
    "tistream.delivery": Key("delivery", "text"),
    "tistream.split-unique-updates": Key("split_unique_updates", "flag"),
    "tistream.allow-no-tables": Key("allow_no_tables", "flag"),
    "tistream.on-table-error": Key("on_table_error", "text"),
    "tistream.shards": Key("shards", "number", 1, SHARDS_MAX),
    "tistream.shards-max": Key("shards_max", "number", 1, SHARDS_MAX),
    "tistream.admin-events": Key("admin_events", "flag"),
}
"""Keys that set a field as they are."""

OLD_VALUE = {"sink.open.output-old-value": "open-protocol", "sink.debezium.output-old-value": "debezium"}
"""Keys of `protocol.output_old_value`, each of one protocol."""

LISTS = frozenset({"sink.dispatchers", "sink.column-selectors", "filter.event-filters", "tistream.tables"})
"""Lists of tables, which listed.py reads."""

FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "bdr-mode": (("false",), "feeds do not replicate in both directions"),
    "enable-old-value": (("true",), "old values are always read"),
    "integrity.integrity-check-level": (("none",), "row checksums are not sent"),
    _CODEC + "avro-enable-watermark": (("false",), "avro has no watermarks"),
    _CODEC + "encoding-format": (("json",), "the simple protocol is sent as JSON only"),
    "tistream.compatible": (("ticdc",), "leave it out for messages without TiCDC's faults"),
    "tistream.time-zone": (("utc",), "TIMESTAMP values are sent in UTC"),
    "tistream.kafka-key": (("ticdc",), "keys are those of TiCDC's protocols"),
    "tistream.headers": (("false",), "messages have no headers"),
    "tistream.on-row-error": (("stop",), "dead-letter is chosen for tables, as on-row-error of [[tistream.tables]]"),
}
"""Keys of which only some values are supported, with the reason that an error gives."""

REFUSED: dict[str, str] = {
    "sink.kafka-config.sasl-oauth-": "OAUTHBEARER is not supported: use PLAIN or SCRAM",
    "sink.kafka-config.sasl-gssapi-": "GSSAPI is not supported: use PLAIN or SCRAM",
    "sink.kafka-config.glue-schema-registry-config": "AWS Glue is not supported: use a Confluent schema registry",
    "sink.pulsar-config": "Pulsar is not supported",
}
"""Beginnings of keys that are refused, with the reason."""

UNNEEDED = (
    "memory-quota",
    "check-gc-safe-point",
    "ignore-ineligible-table",
    "changefeed-error-stuck-duration",
    "enable-sync-point",
    "sync-point-interval",
    "sync-point-retention",
    "enable-table-monitor",
    "sql-mode",
    "mounter.",
    "scheduler.",
    "synced-status.",
    "consistent.",
    "integrity.corruption-handle-level",
    "sink.encoder-concurrency",
    "sink.terminator",
    "sink.date-separator",
    "sink.enable-partition-separator",
    "sink.file-index-digit",
    "sink.safe-mode",
    "sink.transaction-atomicity",
    "sink.txn-atomicity",
    "sink.advance-timeout-in-sec",
    "sink.enable-kafka-sink-v2",
    "sink.csv.",
    "sink.mysql-config.",
    "sink.cloud-storage-config.",
    "sink.kafka-config.kafka-version",
    "sink.kafka-config.kafka-client-id",
    "sink.kafka-config.dial-timeout",
    "sink.kafka-config.read-timeout",
    "sink.kafka-config.write-timeout",
    "sink.kafka-config.max-open-requests",
)
"""Keys, or beginnings of keys that end with a dot, that TiCDC has and a feed does not need."""

_SINK_OPTIONS = (
    "protocol",
    "only-output-updated-columns",
    "delete-only-output-handle-key-columns",
    "content-compatible",
    "transaction-atomicity",
)
_CODEC_OPTIONS = (
    "enable-tidb-extension",
    "max-batch-size",
    "avro-enable-watermark",
    "avro-decimal-handling-mode",
    "avro-bigint-unsigned-handling-mode",
    "encoding-format",
    "output-row-key",
)


def option_key(name: str) -> str:
    """The key of the configuration file that has the same meaning as this option of a sink URI."""
    if name == "delivery":
        return "tistream.delivery"
    if name in _SINK_OPTIONS:
        return f"sink.{name}"
    return f"{_CODEC if name in _CODEC_OPTIONS else _KAFKA}{name.replace('.', '-')}"
