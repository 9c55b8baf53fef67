"""`tistream changefeed import`: what `cdc cli changefeed query` prints becomes a changefeed that goes on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tistream_changefeed.config.parse import parse_feed
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_cli.changefeed.ticdc_query import queried
from tistream_client.cli.errors import CliError

# As TiCDC prints it: keys with underscores, null and empty texts for what is not set
QUERIED: dict[str, Any] = {
    "upstream_id": 7294539441777121232,
    "namespace": "default",
    "id": "orders-to-kafka",
    "sink_uri": "kafka://broker:9092/orders?protocol=canal-json&partition-num=3",
    "config": {
        "memory_quota": 1073741824,
        "case_sensitive": False,
        "force_replicate": True,
        "ignore_ineligible_table": False,
        "check_gc_safe_point": True,
        "enable_sync_point": False,
        "bdr_mode": False,
        "sync_point_interval": 600000000000,
        "filter": {"rules": ["shop.*"], "ignore_txn_start_ts": None, "event_filters": None},
        "mounter": {"worker_num": 16},
        "sink": {
            "protocol": "canal-json",
            "schema_registry": "",
            "dispatchers": [{"matcher": ["shop.*"], "partition": "index-value", "topic": ""}],
            "column_selectors": None,
            "transaction_atomicity": "",
            "encoder_concurrency": 32,
            "terminator": "\r\n",
            "date_separator": "day",
            "enable_partition_separator": True,
            "only_output_updated_columns": False,
            "delete_only_output_handle_key_columns": False,
            "content_compatible": False,
            "send_bootstrap_interval_in_sec": 120,
            "open": {"output_old_value": True},
            "debezium": {"output_old_value": True},
            "kafka_config": None,
        },
        "consistent": {"level": "none", "max_log_size": 64, "storage": ""},
        "scheduler": {"enable_table_across_nodes": False, "region_threshold": 100000},
        "integrity": {"integrity_check_level": "none", "corruption_handle_level": "warn"},
        "changefeed_error_stuck_duration": 1800000000000,
        "synced_status": {"synced_check_interval": 300, "checkpoint_interval": 15},
    },
    "create_time": "2026-11-01 10:00:00.000",
    "start_ts": 451000000000000000,
    "target_ts": 0,
    "checkpoint_tso": 452000000000000001,
    "state": "normal",
}


def test_a_feed_of_ticdc_goes_on_at_its_checkpoint() -> None:
    found = queried(json.dumps(QUERIED))
    assert (found.feed_id, found.start_ts, found.end_ts) == ("orders-to-kafka", 452000000000000001, None)
    feed = parsed(found.sink_uri, found.config).config
    assert (feed.protocol.protocol, feed.kafka.partition_num) == ("canal-json", 3)
    assert (feed.filter.rules, feed.filter.force_replicate) == (("shop.*",), True)
    assert [(one.matcher, one.partition, one.topic) for one in feed.dispatchers] == [(("shop.*",), "index-value", None)]


# What the API of TiCDC adds for each sink, with its own names of keys, and durations in nanoseconds
OF_SINKS: dict[str, dict[str, Any]] = {
    "mysql://root@db:3306/": {
        "mysql_config": {"worker_count": 8, "max_multi_update_row_count": 40, "write_timeout": "2m"},
        "transaction_atomicity": "table",
        "safe_mode": True,
    },
    "s3://bucket/feeds/orders?protocol=csv": {
        "csv": {
            "delimiter": ",",
            "quote": '"',
            "null": "\\N",
            "include_commit_ts": True,
            "binary_encoding_method": "base64",
            "output_old_value": False,
            "output_handle_key": False,
            "output_field_header": False,
        },
        "file_index_width": 8,
        "cloud_storage_config": {"flush_interval": "5s", "file_expiration_days": 0, "spool_base_dir": "/tmp"},
    },
    "kafka://broker:9092/orders?protocol=canal-json": {
        "kafka_config": {"partition_num": 3, "glue_schema_registry_config": None},
    },
}


def queried_sink(uri: str, more: Mapping[str, Any]) -> str:
    """What TiCDC prints of a changefeed into this sink, with `more` in its section `sink`."""
    every = {
        "advance_timeout": 150,
        "enable_kafka_sink_v2": False,
        "send_bootstrap_interval_in_sec": 120,
        "send_bootstrap_in_msg_count": 10_000,
        "send_bootstrap_to_all_partition": True,
        "send-all-bootstrap-at-start": False,
        "debezium_disable_schema": False,
        "open": {"output_old_value": True},
        "debezium": {"output_old_value": True},
        "encoder_concurrency": 32,
        "terminator": "\r\n",
    }
    top = {
        "sync_point_interval": 600_000_000_000,
        "sync_point_retention": 86_400_000_000_000,
        "enable_active_active": False,
        "active_active_progress_interval": 1_800_000_000_000,
        "changefeed_error_stuck_duration": 1_800_000_000_000,
    }
    return json.dumps({**QUERIED, "sink_uri": uri, "config": {**QUERIED["config"], **top, "sink": {**every, **more}}})


@pytest.mark.parametrize(("uri", "more"), OF_SINKS.items())
def test_a_feed_of_ticdc_into_each_sink_is_taken_with_what_the_api_prints(uri: str, more: Mapping[str, Any]) -> None:
    found = queried(queried_sink(uri, more))
    feed = parse_feed(found.sink_uri, found.config).config
    if feed.mysql is not None:
        assert (feed.mysql.workers, feed.mysql.atomicity, feed.mysql.safe_mode) == (8, "table", True)
        assert (feed.mysql.sync_interval_ms, feed.mysql.sync_retention_ms) == (600_000, 86_400_000)
    elif feed.storage is not None:
        assert (feed.storage.file_index_digit, feed.storage.csv.include_commit_ts) == (8, True)
        assert feed.storage.flush_interval_ms == 5_000
    else:
        assert feed.kafka.partition_num == 3


def test_secrets_that_ticdc_masks_though_they_are_not_set_are_left_out_with_a_given_uri() -> None:
    masked = {"partition_num": 3, "sasl_password": "******", "key": "******", "sasl_oauth_client_secret": "******"}
    text = queried_sink("kafka://broker:9092/orders", {"kafka_config": masked})
    with pytest.raises(CliError, match=r"masked sink.kafka_config.sasl_password .*--sink-uri"):
        queried(text)
    found = queried(text, "kafka://broker:9092/orders")
    assert parse_feed(found.sink_uri, found.config).config.kafka.partition_num == 3


def test_a_masked_password_in_an_address_of_the_configuration_is_noticed() -> None:
    more = {"schema_registry": "http://me:xxxxx@registry:8081"}
    with pytest.raises(CliError, match=r"masked sink.schema_registry in config: put it into"):
        queried(queried_sink("kafka://broker:9092/orders", more), "kafka://broker:9092/orders")


def test_an_end_and_the_names_of_the_api_are_taken() -> None:
    of_api = {name: value for name, value in QUERIED.items() if name != "checkpoint_tso"}
    found = queried(json.dumps({**of_api, "checkpoint_ts": 7, "target_ts": 9}))
    assert (found.start_ts, found.end_ts) == (7, 9)
    assert queried(json.dumps(of_api)).start_ts == QUERIED["start_ts"], "a changefeed that has not begun"


@pytest.mark.parametrize(
    "uri", ["kafka://me:xxxxx@broker:9092/t", "kafka://broker:9092/t?sasl-password=******&sasl-user=me"]
)
def test_a_masked_password_is_given_anew(uri: str) -> None:
    text = json.dumps({**QUERIED, "sink_uri": uri})
    with pytest.raises(CliError, match="--sink-uri"):
        queried(text)
    assert queried(text, "kafka://me:hunter2@broker:9092/t").sink_uri == "kafka://me:hunter2@broker:9092/t"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"feed.json is not JSON \(.*write the output of `cdc cli changefeed query"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no id or no sink_uri"),
        (json.dumps({**QUERIED, "config": "x"}), "config in feed.json is not an object"),
        (
            json.dumps({**QUERIED, "checkpoint_tso": "7"}),
            "checkpoint_tso in feed.json is '7', which is not a timestamp",
        ),
        (json.dumps({**QUERIED, "target_ts": -1}), "target_ts in feed.json is '-1', which is not a timestamp"),
        (json.dumps({"id": "a", "sink_uri": "kafka://h:1/t"}), "no checkpoint_tso"),
        (json.dumps({**QUERIED, "config": {"sink": {"kafka_config": {"sasl_password": "******"}}}}), "has masked sink"),
    ],
)
def test_what_is_no_query_is_refused_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(CliError, match=says):
        queried(text, None, "feed.json")
