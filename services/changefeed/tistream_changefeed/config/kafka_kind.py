"""Completes and checks the configuration of a feed that writes to Kafka. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.listed import refused

_PROTOCOLS = {"default": "open-protocol", "open": "open-protocol"}


def finish(values: dict[str, Any], old_values: Mapping[str, bool]) -> None:
    """Complete `values`, the fields from which the FeedConfig will be built, in place: TiCDC's spellings of protocols
    and mechanisms become those of FeedConfig, and `output_old_value` is set to that of the protocol in `old_values`
    (default: true). Raises InvalidRequest for the protocol csv, which is for object storage."""
    protocol = values["protocol"]
    name = str(protocol.get("protocol", "open-protocol")).lower()
    if name == "csv":
        raise refused(
            "protocol csv is for object storage, and TiCDC has none into Kafka: use open-protocol or canal-json"
        )
    protocol["protocol"] = _PROTOCOLS.get(name, name)
    protocol["output_old_value"] = old_values.get(protocol["protocol"], True)
    if mechanism := values["kafka"].get("sasl_mechanism"):
        values["kafka"]["sasl_mechanism"] = str(mechanism).upper()


def check(config: FeedConfig) -> None:
    """Check that the settings do not contradict each other. Raises InvalidRequest."""
    kafka, protocol = config.kafka, config.protocol
    if kafka.required_acks != -1 and config.delivery == "exactly-once":
        raise refused(
            "required-acks must be -1 (all) with delivery = 'exactly-once': remove it, or set delivery = "
            "'at-least-once'"
        )
    if (kafka.sasl_user is None) != (kafka.sasl_password is None):
        raise refused("sasl-user and sasl-password are needed together: give both, or neither")
    if (kafka.cert is None) != (kafka.key is None):
        raise refused("cert and key are needed together: give both, or neither")
    if protocol.protocol == "avro":
        if protocol.schema_registry is None:
            raise refused(
                "protocol avro needs sink.schema-registry: set the address of a schema registry, or use another "
                "protocol"
            )
        if config.filter.force_replicate:
            raise refused(
                "protocol avro needs a key in each message, and force-replicate sends tables without one: set it to "
                "false"
            )
    if protocol.protocol == "simple" and max(config.shards, config.shards_max) > 1:
        raise refused(
            "protocol simple has one shard, because its schemas stand before the rows of a partition: set "
            "tistream.shards = 1 and no higher shards-max"
        )
    if config.admin_events and protocol.protocol != "open-protocol":
        raise refused(f"admin-events is not supported with {protocol.protocol}: only open-protocol has such messages")
    _check_large(config)


def _check_large(config: FeedConfig) -> None:
    protocol, large = config.protocol, config.kafka.large
    if large.option == large.compression == "none":
        return
    if protocol.protocol not in ("open-protocol", "simple", "canal-json"):
        raise refused(
            f"large-message-handle is not supported with {protocol.protocol}: remove it, or use another protocol"
        )
    if large.option == "none":
        return
    if protocol.protocol == "canal-json" and not protocol.enable_tidb_extension:
        raise refused("large-message-handle needs enable-tidb-extension = true with canal-json: set it")
    if large.option == "claim-check" and large.claim_check_storage_uri is None:
        raise refused("claim-check needs claim-check-storage-uri, the place of large messages: set it")
    if large.claim_check_raw_value and protocol.protocol == "open-protocol":
        raise refused("claim-check-raw-value is not supported with open-protocol: remove it")
