"""What a feed stores in its own table: its progress, and which tables it is about to commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table

from tistream.model.ids import TenantKey
from tistream_changefeed.core import progress as progresses
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.target import Identifier

PROGRESS, BEGUN = "tistream.progress", "tistream.begun"


@dataclass(frozen=True, slots=True)
class Stored:
    """What a commit to the feed's own table has stored: the feed's progress. `texts`: the texts that state it. Their
    member BEGUN is the JSON list of the tables that the feed was about to commit."""

    progress: Progress
    texts: Mapping[str, str]

    def begun(self, where: str) -> list[Identifier]:
        """The tables that the feed was about to commit. `where` names the feed's own table in errors. Raises FeedFailed
        if another program has written it."""
        try:
            return [tuple(one) for one in json.loads(self.texts[BEGUN])]
        except (KeyError, TypeError, ValueError) as error:
            raise failed("sink", where, "another program has written it: drop the table") from error


def stored(lake: Lake, own: Table, tenant: TenantKey, identifier: Identifier) -> Stored | None:
    """Read what the newest commit to the feed's own table has stored; None without a commit. Raises FeedFailed.

    It is stored twice, because neither place is certain: the snapshot may have expired or been rolled back, and earlier
    releases do not write the properties of the table. The text with the higher fence counts, and of those with the same
    fence the one with the higher position.
    """
    summary = next((one.summary for one in lake.told(own) if PROGRESS in one.summary), {})
    where = lake.named(identifier)
    found = [
        Stored(progresses.decode(tenant, texts[PROGRESS].encode(), where), texts)
        for texts in (own.properties, summary)
        if PROGRESS in texts
    ]
    return max(found, key=lambda one: (one.progress.fence, one.progress.at), default=None)
