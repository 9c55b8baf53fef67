"""Reads and writes the history of changefeeds in the meta database, as events. Each event is written in the transaction
of its change."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from tistream.model.ids import TenantKey
from tistream.wire.bulk.feed_changes import EVENTS_MAX, FeedEvent, Happening
from tistream_meta.audit import audited_action
from tistream_meta.database import tables
from tistream_meta.decide.feed_policy import Feed
from tistream_meta.feeds.feed_rows import named

_EVENTS = tables.feed_events


def note(connection: Connection, now_ms: ColumnElement[int], feed: Feed, event: Happening) -> None:
    """Record an event of a feed, with the user who caused it, if one did. Only the newest EVENTS_MAX events of the feed
    are kept."""
    actor = audited_action.current().actor
    by = event.by if actor is audited_action.PLATFORM else actor.name
    here = named(_EVENTS, feed.tenant, feed.feed_id)
    seq = 1 + int(connection.execute(select(func.coalesce(func.max(_EVENTS.c.seq), 0)).where(here)).scalar_one())
    connection.execute(
        insert(_EVENTS).values(
            cluster_id=feed.tenant.cluster_id,
            tenant_id=feed.tenant.tenant_id,
            changefeed_id=feed.feed_id,
            seq=seq,
            at_ms=now_ms,
            event=json.dumps({**event.model_dump(exclude_none=True), "by": by}),  # the column is ASCII
        )
    )
    connection.execute(delete(_EVENTS).where(here, _EVENTS.c.seq <= seq - EVENTS_MAX))


def newest(connection: Connection, key: TenantKey, feed_id: str) -> Sequence[FeedEvent]:
    """The events of a feed, newest first."""
    rows = connection.execute(select(_EVENTS).where(named(_EVENTS, key, feed_id)).order_by(_EVENTS.c.seq.desc()))
    return [
        FeedEvent(seq=row.seq, at_ms=str(row.at_ms), **Happening.model_validate_json(row.event).model_dump())
        for row in rows
    ]
