"""What a feed stores in its own table: its progress, and which tables it is about to commit."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

from tistream_changefeed.sinks.iceberg.lake import Lake

PROGRESS, BEGUN = "tistream.progress", "tistream.begun"


def stored(lake: Lake, own: Table) -> Mapping[str, str] | None:
    """What the newest commit to the feed's own table has stored, or None without a commit. Properties have it too,
    because a snapshot expires or is rolled back; those of earlier releases do not."""
    if PROGRESS in own.properties:
        return own.properties
    return next((one.summary for one in lake.told(own) if PROGRESS in one.summary), None)
