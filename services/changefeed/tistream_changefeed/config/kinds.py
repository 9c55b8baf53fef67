"""The kinds of sinks: which URIs name them, and how their configuration is parsed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tistream_changefeed.config import iceberg_kind, kafka_kind, mysql_kind, storage_kind
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.keys import KAFKA_KEYS, SinkKeys
from tistream_changefeed.config.sink_uri import SinkUri, parse_kafka_uri, refused


@dataclass(frozen=True, slots=True)
class SinkKind:
    """One kind of sink. `form` is the form of its URIs, for errors. `parse_uri` parses a URI; the names that it gives
    to the secrets of the URI begin with its second argument. `keys` are the keys of its configuration. `finish`
    completes and normalizes, in place, the values from which the FeedConfig will be built; its second argument is the
    user's `output-old-value` of each protocol. `check` refuses settings that contradict each other. `parse_uri`,
    `finish` and `check` raise InvalidRequest."""

    form: str
    keys: SinkKeys
    parse_uri: Callable[[str, str], SinkUri]
    finish: Callable[[dict[str, Any], Mapping[str, bool]], None]
    check: Callable[[FeedConfig], None]


_KAFKA = SinkKind(
    "kafka://HOST:PORT,…/TOPIC?protocol=…", KAFKA_KEYS, parse_kafka_uri, kafka_kind.finish, kafka_kind.check
)
_S3, _FILE = (
    SinkKind(
        form,
        storage_kind.STORAGE_KEYS,
        storage_kind.parse_storage_uri,
        storage_kind.finish,
        storage_kind.check,
    )
    for form in storage_kind.FORMS
)
_MYSQL = SinkKind(
    "mysql://USER:PASSWORD@HOST:PORT/",
    mysql_kind.MYSQL_KEYS,
    mysql_kind.parse_mysql_uri,
    mysql_kind.finish,
    mysql_kind.check,
)
_ICEBERG = SinkKind(
    "iceberg://CATALOG/NAMESPACE?catalog-uri=…",
    iceberg_kind.ICEBERG_KEYS,
    iceberg_kind.parse_iceberg_uri,
    iceberg_kind.finish,
    iceberg_kind.check,
)
KINDS = {
    "kafka": _KAFKA,
    "kafka+ssl": _KAFKA,
    "s3": _S3,
    "file": _FILE,
    **dict.fromkeys(mysql_kind.SCHEMES, _MYSQL),
    iceberg_kind.SCHEME: _ICEBERG,
}
"""Each kind of sink by the schemes of its URIs."""


def scheme_of(sink_uri: str) -> str:
    """The scheme of a sink URI. Raises InvalidRequest for a scheme of no sink."""
    scheme, found, _ = sink_uri.partition("://")
    if not found or scheme.lower() not in KINDS:
        forms = " or ".join(dict.fromkeys(kind.form for kind in KINDS.values()))
        raise refused(f"it is not {forms}, and other sinks are not supported")
    return scheme.lower()


def kind_of(sink_uri: str) -> SinkKind:
    """The kind of the sink that a URI names. Raises InvalidRequest for a scheme of no sink."""
    return KINDS[scheme_of(sink_uri)]
