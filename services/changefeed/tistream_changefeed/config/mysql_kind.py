"""Parses the sink URI of a feed that writes into MySQL, MariaDB or TiDB, and completes and checks its configuration.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tistream.wire.bulk.changefeeds import SHARDS_MAX
from tistream_changefeed.config.durations import Bounds, duration_ms
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.keys import GENERAL, GENERAL_FIXED, GENERAL_UNNEEDED, OF_KAFKA, ConfigKey, SinkKeys
from tistream_changefeed.config.listed import refused as refused_config
from tistream_changefeed.config.sink_uri import SinkUri, is_placeholder, placeholder, refused, unique_names
from tistream_changefeed.config.sink_uri import without_secrets as options_without_secrets

SCHEMES = ("mysql", "mysql+ssl", "tidb", "tidb+ssl")
WORKERS_MAX = 64
_MYSQL = "sink.mysql-config."
_SINK_OPTIONS = ("safe-mode", "transaction-atomicity")
_OWN_OPTIONS = ("snapshot",)
_DAYS_100 = 100 * 86_400_000
_DURATIONS = (
    ("sync_interval", "sync-point-interval", Bounds(30_000, _DAYS_100, "30s to 2400h")),
    ("sync_retention", "sync-point-retention", Bounds(3_600_000, _DAYS_100, "1h to 2400h")),
)


def _option_key(name: str) -> str:
    if name in _OWN_OPTIONS:
        return f"tistream.{name}"
    return f"sink.{name}" if name in _SINK_OPTIONS else f"{_MYSQL}{name}"


MYSQL_KEYS = SinkKeys(
    used={
        **{key: used for key, used in GENERAL.items() if key != "tistream.delivery"},
        _MYSQL + "user": ConfigKey("mysql.user", "text"),
        _MYSQL + "password": ConfigKey("mysql.password", "text", secret=True),
        _MYSQL + "worker-count": ConfigKey("mysql.workers", "number", 1, 1024),
        _MYSQL + "ssl-ca": ConfigKey("mysql.ca", "text", pem=True),
        _MYSQL + "ssl-cert": ConfigKey("mysql.cert", "text", pem=True),
        _MYSQL + "ssl-key": ConfigKey("mysql.key", "text", secret=True, pem=True),
        "sink.safe-mode": ConfigKey("mysql.safe_mode", "flag"),
        "sink.transaction-atomicity": ConfigKey("mysql.atomicity", "text"),
        "tistream.snapshot": ConfigKey("mysql.snapshot", "text"),
        "tistream.shards": ConfigKey("shards", "number", 1, SHARDS_MAX),
        "enable-sync-point": ConfigKey("mysql.sync_points", "flag"),
        "sync-point-interval": ConfigKey("mysql.sync_interval", "duration"),
        "sync-point-retention": ConfigKey("mysql.sync_retention", "duration"),
    },
    fixed={
        **GENERAL_FIXED,
        _MYSQL + "time-zone": (("utc", ""), "TIMESTAMP values are written in UTC, which changes no value"),
        "tistream.shards-max": (("1",), "a feed into MySQL has as many shards as tistream.shards says"),
        "tistream.delivery": (("exactly-once",), "into MySQL every feed is exactly-once"),
    },
    refused={
        "sink.column-selectors": "column selectors are not supported into MySQL: rows are written whole",
        "sink.dispatchers": "a feed into MySQL has no topics: remove the dispatchers",
    },
    unneeded=(
        *GENERAL_UNNEEDED,
        *OF_KAFKA,
        "sink.terminator",
        "sink.date-separator",
        "sink.enable-partition-separator",
        "sink.file-index-digit",
        "sink.csv.",
        "sink.cloud-storage-config.",
        _MYSQL + "max-txn-row",
        _MYSQL + "max-multi-update-row",
        _MYSQL + "max-multi-update-row-size",
        _MYSQL + "max-multi-update-row-count",
        _MYSQL + "tidb-txn-mode",
        _MYSQL + "batch-dml-enable",
        _MYSQL + "multi-stmt-enable",
        _MYSQL + "cache-prep-stmts",
        _MYSQL + "enable-batch-dml",
        _MYSQL + "enable-multi-statement",
        _MYSQL + "enable-cache-prepared-statement",
        _MYSQL + "enable-ddl-ts",
        _MYSQL + "prep-stmt-cache-size",
        _MYSQL + "timeout",
        _MYSQL + "read-timeout",
        _MYSQL + "write-timeout",
        _MYSQL + "compression",
    ),
    option_key=_option_key,
)


def parse_mysql_uri(uri: str, prefix: str = "") -> SinkUri:
    """Parse `mysql://user:password@host:port/?worker-count=…`. The names of its secrets begin with `prefix`. Raises
    InvalidRequest, which names the part, never a secret."""
    scheme, _, rest = uri.partition("://")
    try:
        parts = urlsplit(f"mysql://{rest}")
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        port = parts.port or 3306
    except ValueError:
        raise refused("it is not a URI: write HOST:PORT, and each option as NAME=VALUE") from None
    if not parts.hostname:
        raise refused("it names no server: write USER:PASSWORD@HOST:PORT")
    if parts.path not in ("", "/"):
        raise refused("it has a path: tables keep the names of their databases, so leave it out")
    if parts.fragment:
        raise refused("it has a fragment: write `#` as %23")
    names = unique_names(options)
    if {"user", "password"} & set(names):
        raise refused("user and password stand before the host: USER:PASSWORD@HOST")
    found = options_without_secrets(options, MYSQL_KEYS, prefix)
    secrets, user = dict(found.secrets), unquote(parts.username or "root")
    values = {**found.values, _MYSQL + "user": user}
    shown = quote(user, safe="")
    if parts.password:
        password = unquote(parts.password)
        if not is_placeholder(password):
            secrets[prefix + "password"] = password
            password = placeholder(prefix + "password")
        values[_MYSQL + "password"] = password
        shown += f":{password}"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    fields = {"mysql": {"host": parts.hostname, "port": port}}
    return SinkUri(fields, values, f"{scheme.lower()}://{shown}@{host}:{port}/{found.query}", secrets)


def finish(values: dict[str, Any], old_values: Mapping[str, bool]) -> None:  # noqa: ARG001
    """Complete `values`, the fields from which the FeedConfig will be built, in place: the number of connections
    becomes at most WORKERS_MAX, and durations are converted to ms. `old_values` is not used. Raises InvalidRequest if a
    duration is invalid."""
    mysql = values["mysql"]
    mysql["workers"] = min(mysql.get("workers", 16), WORKERS_MAX)
    for name, key, bounds in _DURATIONS:
        if name in mysql:
            mysql[f"{name}_ms"] = duration_ms(key, mysql.pop(name), bounds)


def check(config: FeedConfig) -> None:
    """Check that the settings do not contradict each other. Raises InvalidRequest."""
    assert config.mysql is not None
    if (config.mysql.cert is None) != (config.mysql.key is None):
        raise refused_config("ssl-cert and ssl-key are needed together: give both, or neither")
    if any(one.on_row_error == "dead-letter" for one in config.tables):
        raise refused_config("on-row-error = 'dead-letter' is not supported into MySQL: skip events one by one")
    if config.mysql.atomicity == "global" and config.shards > 1:
        raise refused_config(
            "transaction-atomicity = 'global' keeps transactions of several tables whole, and tistream.shards = "
            f"{config.shards} writes them apart: set shards to 1, or the atomicity to 'table'"
        )
