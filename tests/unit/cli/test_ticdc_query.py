"""`tistream changefeed import`: what `cdc cli changefeed query` prints becomes a changefeed that goes on there."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
