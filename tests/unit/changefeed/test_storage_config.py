"""Sink URIs of object storage: what is taken with TiCDC's names, what is refused by name, and where feeds may write."""

from __future__ import annotations

from typing import Any

import pytest

from support.feed_tables import column, version
from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream_changefeed.config.feed_config import CsvConfig
from tistream_changefeed.config.parse import parse_feed, read_toml
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.feeds import feed_of
from tistream_changefeed.sinks.kafka.feed_settings import without_secrets
from tistream_changefeed.sinks.storage.file_windows import FileWindows
from tistream_changefeed.sinks.storage.storage_feed import storage_feed

URI = "s3://bucket/feeds/orders?protocol=csv"
WHOLE = """
[filter]
rules = ["shop.*"]
[sink]
protocol = "csv"
terminator = "\\n"
date-separator = "month"
enable-partition-separator = false
file-index-digit = 8
encoder-concurrency = 16
[sink.csv]
delimiter = "|"
quote = "'"
null = "NULL"
include-commit-ts = true
output-old-value = true
binary-encoding-method = "hex"
[sink.cloud-storage-config]
worker-count = 8
flush-interval = "1m30s"
file-size = 1048576
output-column-id = true
file-expiration-days = 0
"""


def test_a_whole_file_of_ticdc_is_taken() -> None:
    found = parse_feed("s3://bucket/feeds/orders?worker-count=8", read_toml(WHOLE))
    storage = found.config.storage
    assert storage is not None
    assert (storage.url, storage.format, storage.terminator) == ("s3://bucket/feeds/orders", "csv", "\n")
    assert (storage.flush_interval_ms, storage.file_size, storage.file_index_digit) == (90_000, 1 << 20, 8)
    assert (storage.date_separator, storage.enable_partition_separator, storage.output_column_id) == (
        "month",
        False,
        True,
    )
    assert storage.csv == CsvConfig(
        delimiter="|",
        quote="'",
        null="NULL",
        include_commit_ts=True,
        output_old_value=True,
        binary_encoding_method="hex",
    )
    assert [one.partition(" ")[0] for one in found.warnings] == [
        "sink.encoder-concurrency",
        "sink.cloud-storage-config.worker-count",
    ]


def test_the_defaults_are_ticdcs() -> None:
    storage = parse_feed("file:///data/feed?protocol=canal-json", {}).config.storage
    assert storage is not None
    assert (storage.flush_interval_ms, storage.file_size, storage.file_index_digit) == (5_000, 64 << 20, 20)
    assert (storage.date_separator, storage.enable_partition_separator, storage.terminator) == ("day", True, "\r\n")


@pytest.mark.parametrize(
    ("uri", "document", "reason"),
    [
        ("s3://bucket/feed", {}, "names no protocol"),
        ("s3://bucket/feed?protocol=avro", {}, "sink.protocol"),
        ("s3://bucket?protocol=csv", {}, "names no path"),
        ("s3:///feed?protocol=csv", {}, "names no bucket"),
        ("file://host/feed?protocol=csv", {}, "begins with file:///"),
        ("s3://user:pw@bucket/feed?protocol=csv", {}, "access-key"),
        (f"{URI}&flush-interval=5", {}, "not a duration"),
        (f"{URI}&flush=2s", {}, r"is it 'sink.cloud-storage-config.flush-interval'\?"),
        (f"{URI}&colour=red", {}, "remove it"),
        (f"{URI}&flush-interval=50ms", {}, "from 100ms to 10m"),
        (f"{URI}&endpoint=http://169.254.169.254", {}, "operator"),
        (f"{URI}&file-size=1", {}, "file-size"),
        (f"{URI}&access-key=a", {}, "secret-access-key"),
        ("file:///f?protocol=csv&access-key=a&secret-access-key=${secret:s}", {}, "is for S3"),
        (URI, {"tistream": {"shards": 2}}, "one shard"),
        (URI, {"tistream": {"on-table-error": "stop-table"}}, "stop-feed"),
        (URI, {"sink": {"csv": {"delimiter": "abcd"}}}, "csv delimiter"),
        ("azure://c/feed?protocol=csv", {}, "other sinks are not supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(uri: str, document: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        storage_feed(uri, document) if "://" in uri and not uri.startswith("azure") else parse_feed(uri, document)


def test_the_secret_key_is_taken_out_of_what_is_stored() -> None:
    clean = without_secrets("orders", f"{URI}&access-key=AKIA&secret-access-key=hunter2hunter2", {})
    assert "hunter2" not in clean.sink_uri
    assert dict(clean.secrets) == {"orders.secret-access-key": "hunter2hunter2"}
    feed_of(clean.sink_uri, clean.document)


def test_secrets_of_another_sink_are_not_stored() -> None:
    kafka = {"sasl-password": "hunter2", "key": "PEM of a key", "compression": "lz4"}
    document = {"sink": {"kafka-config": kafka, "pulsar-config": {"authentication-token": "hunter2"}}}
    for uri in (URI, "mysql://root@db:3306/"):
        found = parse_feed(uri, document, "feed.")
        assert found.document == {"sink": {"kafka-config": {"compression": "lz4"}, "pulsar-config": {}}}
        assert found.secrets == {}
        assert any("sink.kafka-config.sasl-password is accepted" in one for one in found.warnings)
        assert any("sink.pulsar-config.authentication-token is accepted" in one for one in found.warnings)


def test_a_feed_writes_only_where_the_operator_allows_it() -> None:
    feed = feed_of(URI, {})
    feed.check_allowed(Allowed((), ["s3://bucket/feeds?endpoint=http://127.0.0.1:9000"]))
    with pytest.raises(TargetNotAllowed):
        feed.check_allowed(Allowed(["*"], ["s3://bucket/other"]))
    with pytest.raises(TargetNotAllowed):
        feed_of("file:///data/../etc?protocol=csv", {}).check_allowed(Allowed((), ["file:///data"]))


def test_a_plan_names_the_directory_of_each_table_and_no_topic() -> None:
    id_ = column("id", flag=3)
    planned = feed_of(URI, {"force-replicate": True}).plan([version([id_], name="a", database="shop")])
    assert [one.topic for one in planned.tables] == ["s3://bucket/feeds/orders/shop/a"]
    assert planned.topics == {}


def test_windows_end_at_multiples_of_the_interval_and_are_longer_while_a_feed_is_late() -> None:
    span, windows = 1_000 << 18, FileWindows(1_000)
    assert windows.interval_end(span) == span
    assert windows.interval_end(span + 1) == 2 * span
    assert windows.next_end(5 * span, 5_400) == 6 * span
    assert windows.next_end(5 * span, 5_000 + 24_000) == 8 * span
    assert windows.next_end(5 * span, 10_000_000) == 65 * span
    assert FileWindows(1_000, 5 * span + 7).next_end(5 * span, 10_000_000) == 5 * span + 7
    assert windows.end(2 * span, 8 * span) == 8 * span
    assert windows.end(8 * span + 1, 8 * span) == 9 * span
