"""Parses the sink URI of a feed that writes files (`s3://…` or `file://…`), and completes and checks its configuration.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tistream_changefeed.config.durations import Bounds, duration_ms
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.keys import GENERAL, GENERAL_FIXED, GENERAL_UNNEEDED, OF_KAFKA, ConfigKey, SinkKeys
from tistream_changefeed.config.listed import refused as config_refused
from tistream_changefeed.config.sink_uri import SinkUri, refused, unique_names, without_secrets

FORMS = "s3://BUCKET/PATH?protocol=…", "file:///PATH?protocol=…"
_CLOUD = "sink.cloud-storage-config."
_CODEC = "sink.kafka-config.codec-config."
FLUSH = Bounds(100, 600_000, "100ms to 10m")
_WORKERS = "the place of a feed is opened with the endpoint and the region that the operator has set for it"

_USED: dict[str, ConfigKey] = {
    **GENERAL,
    "sink.protocol": ConfigKey("storage.format", "text"),
    "sink.only-output-updated-columns": ConfigKey("protocol.only_output_updated_columns", "flag"),
    "sink.delete-only-output-handle-key-columns": ConfigKey("protocol.delete_only_output_handle_key_columns", "flag"),
    "sink.content-compatible": ConfigKey("protocol.content_compatible", "flag"),
    "sink.terminator": ConfigKey("storage.terminator", "text"),
    "sink.date-separator": ConfigKey("storage.date_separator", "text"),
    "sink.enable-partition-separator": ConfigKey("storage.enable_partition_separator", "flag"),
    "sink.file-index-digit": ConfigKey("storage.file_index_digit", "number", 6, 20),
    "tistream.layout": ConfigKey("storage.layout", "text"),
    "sink.csv.delimiter": ConfigKey("storage.csv.delimiter", "text"),
    "sink.csv.quote": ConfigKey("storage.csv.quote", "text"),
    "sink.csv.null": ConfigKey("storage.csv.null", "text"),
    "sink.csv.include-commit-ts": ConfigKey("storage.csv.include_commit_ts", "flag"),
    "sink.csv.output-old-value": ConfigKey("storage.csv.output_old_value", "flag"),
    "sink.csv.binary-encoding-method": ConfigKey("storage.csv.binary_encoding_method", "text"),
    _CLOUD + "flush-interval": ConfigKey("storage.flush_interval", "duration"),
    _CLOUD + "file-size": ConfigKey("storage.file_size", "number", 1 << 10, 512 << 20),
    _CLOUD + "output-column-id": ConfigKey("storage.output_column_id", "flag"),
    _CLOUD + "output-raw-change-event": ConfigKey("raw_changes", "flag"),
    _CLOUD + "access-key": ConfigKey("storage.access_key", "text"),
    _CLOUD + "secret-access-key": ConfigKey("storage.secret_access_key", "text", secret=True),
    _CODEC + "enable-tidb-extension": ConfigKey("protocol.enable_tidb_extension", "flag"),
}
_FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    **GENERAL_FIXED,
    "scheduler.enable-table-across-nodes": (("false",), "a table is written by one worker"),
    "sink.csv.output-field-header": (("false",), "files have no header; schema files name the columns"),
    "sink.csv.output-handle-key": (("false",), "lines have no handle keys; schema files name the key"),
    "tistream.shards": (("1",), "a feed into files has one shard"),
    "tistream.shards-max": (("1",), "a feed into files has one shard"),
    _CLOUD + "use-table-id-as-path": (("false",), "directories have the names of tables"),
    _CLOUD + "file-expiration-days": (("0",), "files are not deleted: let the store expire them"),
}
_REFUSED = {
    f"{_CLOUD}{name}": _WORKERS
    for name in ("endpoint", "region", "provider", "force-path-style", "session-token", "profile", "role-arn")
}
_UNNEEDED = (
    *GENERAL_UNNEEDED,
    *OF_KAFKA,
    "enable-sync-point",
    "sync-point-interval",
    "sync-point-retention",
    "sink.safe-mode",
    "sink.transaction-atomicity",
    "sink.txn-atomicity",
    "sink.mysql-config.",
    _CLOUD + "worker-count",
    _CLOUD + "flush-concurrency",
    _CLOUD + "file-cleanup-cron-spec",
    _CLOUD + "spool-disk-quota",
    _CLOUD + "spool-base-dir",
)
_SINK_OPTIONS = frozenset(key.removeprefix("sink.") for key in _USED if key.startswith("sink.") and key.count(".") == 1)


def _option_key(name: str) -> str:
    if name in ("delivery", "layout"):
        return f"tistream.{name}"
    if name in _SINK_OPTIONS:
        return f"sink.{name}"
    return f"{_CODEC if name == 'enable-tidb-extension' else _CLOUD}{name}"


STORAGE_KEYS = SinkKeys(_USED, _FIXED, _REFUSED, _UNNEEDED, _option_key)


def parse_storage_uri(uri: str, prefix: str = "") -> SinkUri:
    """Parse `s3://bucket/path?protocol=…` or `file:///path?protocol=…`. The names of its secrets begin with `prefix`.
    Raises InvalidRequest, which names the part, never a secret."""
    try:
        parts = urlsplit(uri)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise refused("it is not a URI: write each option as NAME=VALUE") from None
    scheme, path = parts.scheme.lower(), parts.path.rstrip("/")
    if "@" in parts.netloc:
        raise refused("it has a user: write access-key and secret-access-key as options")
    if parts.fragment:
        raise refused("it has a fragment: write `#` as %23")
    if (scheme == "s3") is not bool(parts.netloc):
        raise refused("it names no bucket" if scheme == "s3" else "a directory begins with file:///")
    if not path:
        raise refused("it names no path: a feed needs one of its own")
    unique_names(options)
    found = without_secrets(options, STORAGE_KEYS, prefix)
    url = f"{scheme}://{parts.netloc}{path}"
    return SinkUri({"storage": {"url": url, "csv": {}}}, found.values, f"{url}{found.query}", found.secrets)


def finish(values: dict[str, Any], old_values: Mapping[str, bool]) -> None:  # noqa: ARG001
    """Complete `values`, the fields from which the FeedConfig will be built, in place: the format is written in lower
    case, the flush interval is converted to ms, and `on_table_error` becomes `stop-feed` if it is missing. `old_values`
    is not used. Raises InvalidRequest if the protocol is missing or the interval is invalid."""
    storage = values["storage"]
    if "format" not in storage:
        raise refused("it names no protocol: add protocol=csv, protocol=canal-json or protocol=parquet")
    storage["format"] = str(storage["format"]).lower()
    if not storage.get("terminator"):
        storage.pop("terminator", None)  # as in TiCDC
    interval = storage.pop("flush_interval", None)
    if interval is not None:
        storage["flush_interval_ms"] = duration_ms("flush-interval", interval, FLUSH)
    values.setdefault("on_table_error", "stop-feed")


def check(config: FeedConfig) -> None:
    """Check that the settings do not contradict each other. Raises InvalidRequest."""
    storage = config.storage
    assert storage is not None
    if (storage.access_key is None) != (storage.secret_access_key is None):
        raise refused("access-key and secret-access-key are needed together: give both, or neither")
    if storage.access_key is not None and not storage.url.startswith("s3://"):
        raise refused("access-key is for S3: leave it out")
    choices = {config.on_table_error, *(one.on_table_error or config.on_table_error for one in config.tables)}
    if choices != {"stop-feed"} or any(one.on_row_error == "dead-letter" for one in config.tables):
        raise config_refused(
            "a feed into files stops as a whole at an event that cannot be written: set on-table-error = 'stop-feed' "
            "and on-row-error = 'stop', or leave them out"
        )
