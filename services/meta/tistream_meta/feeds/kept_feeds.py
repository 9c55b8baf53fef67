"""Stores what is needed of a changefeed that was removed with `keep_progress`, so that a feed that is created again
under its id continues from the progress in the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FEEDS_MAX, Move
from tistream_meta.database import tables
from tistream_meta.decide.feed_policy import Feed, HeldShard
from tistream_meta.feeds import feed_rows, feed_shards

_KEPT = tables.kept_feeds


@dataclass(frozen=True, slots=True)
class KeptFeed:
    """What is stored of a removed feed, so that a new feed of its id can continue its progress. `generation`, `skipped`
    and `ended` are as in Feed. `revision` is the highest one that was known, `shards` the number of its shards, `epoch`
    their highest epoch, and `checkpoint_ts` their lowest checkpoint. `moved` is the order to move the checkpoint that
    not all shards had applied (the members of Move); None if there was none."""

    generation: int
    revision: int
    shards: int
    epoch: int
    checkpoint_ts: int
    skipped: Mapping[str, int]
    ended: Mapping[str, Sequence[int]]
    moved: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, feed: Feed, shards: Sequence[HeldShard]) -> KeptFeed:
        """Make the KeptFeed of a feed that is about to be removed. `shards` are all shards of the feed, at least
        one."""
        done = 0 if feed.applied is None else feed.applied.revision
        due = feed.moved is not None and feed.moved.revision > done
        return cls(
            feed.generation,
            feed.highest_revision,
            len(shards),
            max(one.epoch for one in shards),
            min(one.checkpoint_ts for one in shards),
            feed.skipped,
            feed.ended,
            feed.moved.model_dump() if due and feed.moved is not None else None,
        )

    def continued(self, feed: Feed) -> Feed:
        """Return a copy of the new feed `feed` that continues the removed one from its checkpoint. It has a new
        revision, so that workers apply its configuration from the progress in the sink on. Raises InvalidRequest if the
        two have different numbers of shards."""
        if feed_shards.shards_max(json.loads(feed.config)) is not None:
            feed = replace(feed, shards=self.shards)
        wanted = feed_shards.shard_count(feed)
        if wanted != self.shards:
            raise InvalidRequest(
                f"changefeed {feed.feed_id} was removed with its progress, and had {self.shards} shards, not {wanted}: "
                f"set tistream.shards = {self.shards} and change the number later, or name a start_ts to begin anew",
                {"parameter": "config"},
            )
        return replace(
            feed,
            generation=self.generation,
            start_ts=self.checkpoint_ts,
            revision=self.revision + 1,
            skipped=self.skipped,
            ended={name: (rows, size) for name, (rows, size) in self.ended.items()},
            moved=None if self.moved is None else Move.model_validate(self.moved),
        )


def keep(connection: Connection, now_ms: ColumnElement[int], feed: Feed) -> None:
    """Store the KeptFeed of a feed that is about to be removed. Of each tenant only the FEEDS_MAX that were removed
    last are stored; the others are deleted."""
    shards = feed_rows.shards(connection, feed_rows.named(tables.feed_shards, feed.tenant, feed.feed_id))
    kept = KeptFeed.of(feed, shards)
    members = {name: value for name in kept.__slots__ if (value := getattr(kept, name)) is not None}
    connection.execute(
        insert(_KEPT).values(
            cluster_id=feed.tenant.cluster_id,
            tenant_id=feed.tenant.tenant_id,
            changefeed_id=feed.feed_id,
            removed_ms=now_ms,
            kept=json.dumps(members),
        )
    )
    mine = feed_rows.of_tenant(_KEPT, feed.tenant)
    names = connection.execute(
        select(_KEPT.c.changefeed_id).where(mine).order_by(_KEPT.c.removed_ms.desc(), _KEPT.c.changefeed_id)
    ).scalars()
    for name in list(names)[FEEDS_MAX:]:
        connection.execute(delete(_KEPT).where(feed_rows.named(_KEPT, feed.tenant, name)))


def taken(connection: Connection, key: TenantKey, feed_id: str) -> KeptFeed | None:
    """Read the KeptFeed that is stored under this feed id, and delete it from the database. Returns None if it does
    not exist."""
    here = feed_rows.named(_KEPT, key, feed_id)
    row = connection.execute(select(_KEPT).where(here)).one_or_none()
    if row is None:
        return None
    connection.execute(delete(_KEPT).where(here))
    return KeptFeed(**json.loads(row.kept))
