"""Builds the feed that a sink URI and a configuration describe, by the kind of its sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.config.kinds import scheme_of
from tistream_changefeed.config.mysql_kind import SCHEMES
from tistream_changefeed.hold.feed import Feed
from tistream_changefeed.sinks.kafka import feed_settings
from tistream_changefeed.sinks.kafka.kafka_feed import KafkaFeed
from tistream_changefeed.sinks.mysql.mysql_feed import mysql_feed
from tistream_changefeed.sinks.storage.storage_feed import storage_feed

Building = Callable[[str, Mapping[str, Any], Sequence[Skip]], Feed]


def _kafka(sink_uri: str, document: Mapping[str, Any], skips: Sequence[Skip]) -> Feed:
    return KafkaFeed(feed_settings.parsed(sink_uri, document, skips))


def _iceberg(sink_uri: str, document: Mapping[str, Any], skips: Sequence[Skip]) -> Feed:
    from tistream_changefeed.sinks.iceberg.lake_feed import lake_feed  # noqa: PLC0415  # pyiceberg takes 2 s to import

    return lake_feed(sink_uri, document, skips)


_BUILDING: dict[str, Building] = {
    "kafka": _kafka,
    "kafka+ssl": _kafka,
    "s3": storage_feed,
    "file": storage_feed,
    **dict.fromkeys(SCHEMES, mysql_feed),
    "iceberg": _iceberg,
}


def feed_of(sink_uri: str, document: Mapping[str, Any], skips: Sequence[Skip] = ()) -> Feed:
    """Build the feed that a sink URI and a configuration describe. `skips` are the events that a person has named to be
    left out. Raises InvalidRequest, which names the invalid or unsupported key, and never a secret."""
    return _BUILDING[scheme_of(sink_uri)](sink_uri, document, skips)
