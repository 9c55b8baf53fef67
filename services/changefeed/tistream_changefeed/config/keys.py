"""The keys of TiCDC's configuration file that all sinks and the Kafka sink support, each with the field of FeedConfig
that it sets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tistream.wire.bulk.changefeeds import SHARDS_MAX

Kind = Literal["flag", "number", "text", "texts", "numbers", "duration"]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A supported key: the path of the field of FeedConfig that it sets, and the kind of its value. Numbers lie between
    `low` and `high`, both inclusive. `secret`: the value is stored encrypted, and a reference replaces it."""

    field: str
    kind: Kind
    low: int = 0
    high: int = 1 << 62
    secret: bool = False
    pem: bool = False  # a PEM text, not the path of a file


@dataclass(frozen=True, slots=True)
class SinkKeys:
    """The keys that one kind of sink supports. `used`: keys that set a field of FeedConfig. `fixed`: keys of which only
    some values are supported, each with these values and the reason that an error gives. `refused`: beginnings of keys
    that are refused, with the reason. `unneeded`: keys of TiCDC that the sink does not need; one that ends with a dot
    stands for all keys that begin with it. `option_key` returns the key that has the same meaning as an option of a
    sink URI."""

    used: Mapping[str, ConfigKey]
    fixed: Mapping[str, tuple[tuple[str, ...], str]]
    refused: Mapping[str, str]
    unneeded: tuple[str, ...]
    option_key: Callable[[str], str]

    def is_unneeded(self, key: str) -> bool:
        """Whether `unneeded` has the key."""
        return any(key == one or (one.endswith(".") and key.startswith(one)) for one in self.unneeded)


_KAFKA = "sink.kafka-config."
_CODEC = "sink.kafka-config.codec-config."
_LARGE = "sink.kafka-config.large-message-handle."

GENERAL: dict[str, ConfigKey] = {
    "case-sensitive": ConfigKey("filter.case_sensitive", "flag"),
    "force-replicate": ConfigKey("filter.force_replicate", "flag"),
    "filter.rules": ConfigKey("filter.rules", "texts"),
    "filter.ignore-txn-start-ts": ConfigKey("filter.ignore_txn_start_ts", "numbers"),
    "tistream.delivery": ConfigKey("delivery", "text"),
    "tistream.allow-no-tables": ConfigKey("allow_no_tables", "flag"),
    "tistream.on-table-error": ConfigKey("on_table_error", "text"),
}
"""Keys of every sink that set a field as they are."""

_KAFKA_USED: dict[str, ConfigKey] = {
    **GENERAL,
    "sink.protocol": ConfigKey("protocol.protocol", "text"),
    "sink.schema-registry": ConfigKey("protocol.schema_registry", "text"),
    "sink.only-output-updated-columns": ConfigKey("protocol.only_output_updated_columns", "flag"),
    "sink.delete-only-output-handle-key-columns": ConfigKey("protocol.delete_only_output_handle_key_columns", "flag"),
    "sink.content-compatible": ConfigKey("protocol.content_compatible", "flag"),
    "sink.debezium-disable-schema": ConfigKey("protocol.debezium_disable_schema", "flag"),
    "sink.send-bootstrap-interval-in-sec": ConfigKey(
        "protocol.send_bootstrap_interval_in_sec", "number", -(1 << 31), 1 << 31
    ),
    "sink.send-bootstrap-in-msg-count": ConfigKey(
        "protocol.send_bootstrap_in_msg_count", "number", -(1 << 31), 1 << 31
    ),
    "sink.send-bootstrap-to-all-partition": ConfigKey("protocol.send_bootstrap_to_all_partition", "flag"),
    "sink.send-all-bootstrap-at-start": ConfigKey("protocol.send_all_bootstrap_at_start", "flag"),
    _KAFKA + "partition-num": ConfigKey("kafka.partition_num", "number", 1, 10_000),
    _KAFKA + "replication-factor": ConfigKey("kafka.replication_factor", "number", 1, 100),
    _KAFKA + "auto-create-topic": ConfigKey("kafka.auto_create_topic", "flag"),
    _KAFKA + "max-message-bytes": ConfigKey("kafka.max_message_bytes", "number", 1_000, 1 << 30),
    _KAFKA + "compression": ConfigKey("kafka.compression", "text"),
    _KAFKA + "required-acks": ConfigKey("kafka.required_acks", "number", -1, 1),
    _KAFKA + "enable-tls": ConfigKey("kafka.enable_tls", "flag"),
    _KAFKA + "insecure-skip-verify": ConfigKey("kafka.insecure_skip_verify", "flag"),
    _KAFKA + "ca": ConfigKey("kafka.ca", "text", pem=True),
    _KAFKA + "cert": ConfigKey("kafka.cert", "text", pem=True),
    _KAFKA + "key": ConfigKey("kafka.key", "text", secret=True, pem=True),
    _KAFKA + "sasl-mechanism": ConfigKey("kafka.sasl_mechanism", "text"),
    _KAFKA + "sasl-user": ConfigKey("kafka.sasl_user", "text"),
    _KAFKA + "sasl-password": ConfigKey("kafka.sasl_password", "text", secret=True),
    _KAFKA + "output-raw-change-event": ConfigKey("raw_changes", "flag"),
    _CODEC + "enable-tidb-extension": ConfigKey("protocol.enable_tidb_extension", "flag"),
    _CODEC + "max-batch-size": ConfigKey("protocol.max_batch_size", "number", 1, 10_000),
    _CODEC + "output-row-key": ConfigKey("protocol.output_row_key", "flag"),
    _CODEC + "avro-decimal-handling-mode": ConfigKey("protocol.avro_decimal_handling_mode", "text"),
    _CODEC + "avro-bigint-unsigned-handling-mode": ConfigKey("protocol.avro_bigint_unsigned_handling_mode", "text"),
    _LARGE + "large-message-handle-option": ConfigKey("kafka.large.option", "text"),
    _LARGE + "large-message-handle-compression": ConfigKey("kafka.large.compression", "text"),
    _LARGE + "claim-check-storage-uri": ConfigKey("kafka.large.claim_check_storage_uri", "text"),
    _LARGE + "claim-check-raw-value": ConfigKey("kafka.large.claim_check_raw_value", "flag"),
    "tistream.split-unique-updates": ConfigKey("split_unique_updates", "flag"),
    "tistream.shards": ConfigKey("shards", "number", 1, SHARDS_MAX),
    "tistream.shards-max": ConfigKey("shards_max", "number", 1, SHARDS_MAX),
    "tistream.admin-events": ConfigKey("admin_events", "flag"),
}

OLD_VALUE = {"sink.open.output-old-value": "open-protocol", "sink.debezium.output-old-value": "debezium"}
"""Keys of `protocol.output_old_value`, each of one protocol."""

LISTS = frozenset({"sink.dispatchers", "sink.column-selectors", "filter.event-filters", "tistream.tables"})
"""Lists of tables, which listed.py reads."""

GENERAL_FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "bdr-mode": (("false",), "feeds do not replicate in both directions"),
    "enable-old-value": (("true",), "old values are always read"),
    "enable-active-active": (("false",), "feeds do not replicate in both directions"),
    "integrity.integrity-check-level": (("none",), "row checksums are not sent"),
    "tistream.time-zone": (("utc",), "TIMESTAMP values are sent in UTC"),
    "tistream.on-row-error": (("stop",), "dead-letter is chosen for tables, as on-row-error of [[tistream.tables]]"),
}
"""Keys of which every sink supports only some values, with the reason that an error gives."""

_KAFKA_FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    **GENERAL_FIXED,
    _CODEC + "avro-enable-watermark": (("false",), "avro has no watermarks"),
    _CODEC + "encoding-format": (("json",), "the simple protocol is sent as JSON only"),
    "tistream.compatible": (("ticdc",), "leave it out for messages without TiCDC's faults"),
    "tistream.kafka-key": (("ticdc",), "keys are those of TiCDC's protocols"),
    "tistream.headers": (("false",), "messages have no headers"),
}

_KAFKA_REFUSED: dict[str, str] = {
    "sink.kafka-config.sasl-oauth-": "OAUTHBEARER is not supported: use PLAIN or SCRAM",
    "sink.kafka-config.sasl-gssapi-": "GSSAPI is not supported: use PLAIN or SCRAM",
    "sink.kafka-config.glue-schema-registry-config": "AWS Glue is not supported: use a Confluent schema registry",
    "sink.pulsar-config": "Pulsar is not supported",
}

GENERAL_UNNEEDED = (
    "memory-quota",
    "check-gc-safe-point",
    "ignore-ineligible-table",
    "changefeed-error-stuck-duration",
    "enable-table-monitor",
    "active-active-progress-interval",
    "active-active-sync-stats-interval",
    "sql-mode",
    "mounter.",
    "scheduler.",
    "synced-status.",
    "consistent.",
    "integrity.corruption-handle-level",
    "sink.encoder-concurrency",
    "sink.advance-timeout-in-sec",
)
"""Keys, or beginnings of keys that end with a dot, that TiCDC has and no feed needs."""

OF_KAFKA = (
    "sink.protocol",
    "sink.schema-registry",
    "sink.enable-kafka-sink-v2",
    "sink.only-output-updated-columns",
    "sink.delete-only-output-handle-key-columns",
    "sink.content-compatible",
    "sink.debezium-disable-schema",
    "sink.send-bootstrap-interval-in-sec",
    "sink.send-bootstrap-in-msg-count",
    "sink.send-bootstrap-to-all-partition",
    "sink.send-all-bootstrap-at-start",
    "sink.open.",
    "sink.debezium.",
    "sink.kafka-config.",
    "sink.pulsar-config.",
)
"""Keys, or beginnings of keys that end with a dot, that TiCDC uses for Kafka, and takes for other sinks too."""

OTHER_NAMES = {
    "sink.file-index-width": "sink.file-index-digit",
    "sink.advance-timeout": "sink.advance-timeout-in-sec",
}
"""Names that TiCDC's API has, and what its configuration file calls them."""

_KAFKA_UNNEEDED = (
    *GENERAL_UNNEEDED,
    "enable-sync-point",
    "sync-point-interval",
    "sync-point-retention",
    "sink.terminator",
    "sink.date-separator",
    "sink.enable-partition-separator",
    "sink.file-index-digit",
    "sink.safe-mode",
    "sink.transaction-atomicity",
    "sink.txn-atomicity",
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


def _option_key(name: str) -> str:
    if name == "delivery":
        return "tistream.delivery"
    if name in _SINK_OPTIONS:
        return f"sink.{name}"
    return f"{_CODEC if name in _CODEC_OPTIONS else _KAFKA}{name.replace('.', '-')}"


KAFKA_KEYS = SinkKeys(_KAFKA_USED, _KAFKA_FIXED, _KAFKA_REFUSED, _KAFKA_UNNEEDED, _option_key)
