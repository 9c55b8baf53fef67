"""Parses the sink URI of a feed that writes Iceberg tables, and completes and checks its configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tistream_changefeed.config.durations import duration_ms
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.keys import GENERAL, GENERAL_FIXED, GENERAL_UNNEEDED, ConfigKey, SinkKeys
from tistream_changefeed.config.listed import refused as refused_config
from tistream_changefeed.config.sink_uri import SinkUri, is_placeholder, refused, unique_names, without_secrets
from tistream_changefeed.config.storage_kind import FLUSH

SCHEME = "iceberg"
_ICEBERG = "tistream.iceberg."
_ONE = "a feed into Iceberg has one shard"
_NAMESPACE = re.compile(r"[^./]+(?:\.[^./]+)*")

ICEBERG_KEYS = SinkKeys(
    used={
        **{key: used for key, used in GENERAL.items() if key != "tistream.delivery"},
        _ICEBERG + "catalog-uri": ConfigKey("iceberg.catalog_uri", "text"),
        _ICEBERG + "catalog-type": ConfigKey("iceberg.catalog_type", "text"),
        _ICEBERG + "warehouse": ConfigKey("iceberg.warehouse", "text"),
        _ICEBERG + "mode": ConfigKey("iceberg.mode", "text"),
        _ICEBERG + "flush-interval": ConfigKey("iceberg.flush_interval", "duration"),
        _ICEBERG + "file-size": ConfigKey("iceberg.file_size", "number", 1 << 10, 512 << 20),
        _ICEBERG + "keep-snapshots": ConfigKey("iceberg.keep_snapshots", "number", 1, 100_000),
        _ICEBERG + "keep-hours": ConfigKey("iceberg.keep_hours", "number", 0, 100_000),
        _ICEBERG + "delta-share": ConfigKey("iceberg.delta_share", "number", 0, 100),
        "tistream.snapshot": ConfigKey("iceberg.snapshot", "text"),
        _ICEBERG + "token": ConfigKey("iceberg.token", "text", secret=True),
        _ICEBERG + "credential": ConfigKey("iceberg.credential", "text", secret=True),
        _ICEBERG + "access-key": ConfigKey("iceberg.access_key", "text"),
        _ICEBERG + "secret-access-key": ConfigKey("iceberg.secret_access_key", "text", secret=True),
    },
    fixed={
        **GENERAL_FIXED,
        "tistream.shards": (("1",), _ONE),
        "tistream.shards-max": (("1",), _ONE),
        "tistream.delivery": (("exactly-once",), "into Iceberg every feed is exactly-once"),
    },
    refused={
        "sink.column-selectors": "column selectors are not supported into Iceberg: rows are written whole",
        "sink.dispatchers": "a feed into Iceberg has no topics: remove the dispatchers",
    },
    unneeded=(
        *GENERAL_UNNEEDED,
        "enable-sync-point",
        "sync-point-interval",
        "sync-point-retention",
        "sink.",
    ),
    option_key=lambda name: f"tistream.{name}" if name == "snapshot" else f"{_ICEBERG}{name}",
)


def parse_iceberg_uri(uri: str, prefix: str = "") -> SinkUri:
    """Parse `iceberg://catalog/namespace?catalog-uri=…`. Without a namespace, the tables of each database go into a
    namespace with its name. The names of the secrets in the result begin with `prefix`. Raises InvalidRequest, which
    names the wrong part, never a secret."""
    try:
        parts = urlsplit(uri)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise refused("it is not a URI: write each option as NAME=VALUE") from None
    if not parts.netloc or "@" in parts.netloc or ":" in parts.netloc:
        raise refused("it names no catalog: write iceberg://CATALOG/NAMESPACE; the address is catalog-uri")
    if parts.fragment:
        raise refused("it has a fragment: write `#` as %23")
    namespace = unquote(parts.path.strip("/")) or "{database}"
    if not _NAMESPACE.fullmatch(namespace):
        raise refused("the path is not a namespace: separate its levels by dots")
    unique_names(options)
    found = without_secrets(options, ICEBERG_KEYS, prefix)
    fields = {"iceberg": {"catalog": parts.netloc, "namespace": namespace}}
    return SinkUri(fields, found.values, f"{SCHEME}://{parts.netloc}{parts.path}{found.query}", found.secrets)


def finish(values: dict[str, Any], old_values: Mapping[str, bool]) -> None:  # noqa: ARG001
    """Complete `values`, the fields from which the FeedConfig will be built, in place: the flush interval is converted
    to ms. `old_values` is not used. Raises InvalidRequest if the catalog's URI or the warehouse is missing, or if the
    interval is invalid."""
    iceberg = values["iceberg"]
    for name in ("catalog_uri", "warehouse"):
        if not iceberg.get(name):
            raise refused(f"it has no option {name.replace('_', '-')}: add it")
    interval = iceberg.pop("flush_interval", None)
    if interval is not None:
        iceberg["flush_interval_ms"] = duration_ms("flush-interval", interval, FLUSH)


def check(config: FeedConfig) -> None:
    """Check that the settings do not contradict each other. Raises InvalidRequest."""
    iceberg = config.iceberg
    assert iceberg is not None
    if (iceberg.access_key is None) != (iceberg.secret_access_key is None):
        raise refused_config("access-key and secret-access-key are needed together: give both, or neither")
    try:
        password = urlsplit(iceberg.catalog_uri).password
    except ValueError:
        raise refused_config(
            "catalog-uri is not a URL: write https://HOST:PORT/PATH, mysql+pymysql://USER@HOST:PORT/DATABASE (`+` is "
            "%2B in a sink URI) or sqlite:////PATH"
        ) from None
    if password is not None and not is_placeholder(password):
        raise refused_config("catalog-uri has a password: write ${secret:NAME} in its place")
    if iceberg.mode != "changelog" and config.filter.force_replicate:
        raise refused_config("force-replicate is for mode=changelog: a table without a key cannot be mirrored")
    if iceberg.mode == "changelog" and iceberg.delta_share:
        raise refused_config("delta-share is for mode=upsert and mode=both: only a table itself has a delta")
    if "leave-table" in {config.on_table_error, *(one.on_table_error for one in config.tables)}:
        raise refused_config(
            "a table in Iceberg is never left behind with a gap, because each snapshot shows the rows at one ts: "
            "set on-table-error to 'stop-table' or 'stop-feed'; on-row-error = 'dead-letter' leaves out the event"
        )
