"""Reads and writes the rows of changefeeds and of their shards in the meta database."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, insert, select, update

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import Applied, Move, Recut, Skip
from tistream_meta.database import tables
from tistream_meta.decide.feed_policy import Feed, HeldShard
from tistream_meta.feeds import feed_shards

FEEDS, SHARDS = tables.changefeeds, tables.feed_shards
Shown = tuple[Feed, HeldShard]


def one(connection: Connection, key: TenantKey, feed_id: str) -> Shown:
    """A feed, and its shards combined into one (feed_shards.combined). Raises UnknownName."""
    found = feeds(connection, named(FEEDS, key, feed_id))
    if not found:
        raise UnknownName(f"tenant {key} has no changefeed {feed_id[:128]!r}: `tistream changefeed list` has the ids")
    return found[0], feed_shards.combined(shards(connection, named(SHARDS, key, feed_id)))


def feeds(connection: Connection, *where: ColumnElement[bool]) -> list[Feed]:
    """The feeds whose rows satisfy the conditions, by tenant and id."""
    rows = connection.execute(select(FEEDS).where(*where).order_by(*FEEDS.primary_key))
    return [_feed(row) for row in rows]


def shards(connection: Connection, *where: ColumnElement[bool]) -> list[HeldShard]:
    """The shards whose rows satisfy the conditions, by tenant, feed and number."""
    rows = connection.execute(select(SHARDS).where(*where).order_by(*SHARDS.primary_key))
    return [_shard(row) for row in rows]


def store(connection: Connection, feed: Feed) -> None:
    """Update the row of the feed with the feed's present values, except those that never change."""
    connection.execute(update(FEEDS).where(named(FEEDS, feed.tenant, feed.feed_id)).values(_changing(feed)))


def release(connection: Connection, feed: Feed, checkpoint_ts: int | None = None) -> None:
    """End the leases of the feed's shards, and delete their reports. Their next workers get new epochs, so that a
    report that arrives late changes nothing. `checkpoint_ts` becomes the checkpoint of every shard that users see;
    None: the checkpoints are unchanged."""
    values: dict[str, Any] = {"node_id": None, "lease_until_ms": 0, "report": None}
    if checkpoint_ts is not None:
        values["checkpoint_ts"] = checkpoint_ts
    connection.execute(update(SHARDS).where(named(SHARDS, feed.tenant, feed.feed_id)).values(values))


def cut(connection: Connection, feed: Feed, count: int, checkpoint_ts: int) -> None:
    """Replace the shards of a feed by `count` new ones, which no process holds. The new ones begin with the highest
    epoch of the old ones, so their first workers get higher epochs than every old worker, and fence it."""
    there = shards(connection, named(SHARDS, feed.tenant, feed.feed_id))
    epoch = max(one.epoch for one in there)
    connection.execute(delete(SHARDS).where(named(SHARDS, feed.tenant, feed.feed_id)))
    for shard in range(count):
        connection.execute(insert(SHARDS).values(new_shard(feed, shard, epoch, checkpoint_ts)))


def new_shard(feed: Feed, shard: int, epoch: int, checkpoint_ts: int) -> dict[str, Any]:
    """The column values of a shard that no process holds."""
    return {
        "cluster_id": feed.tenant.cluster_id,
        "tenant_id": feed.tenant.tenant_id,
        "changefeed_id": feed.feed_id,
        "shard": shard,
        "epoch": epoch,
        "instance": "",
        "lease_until_ms": 0,
        "checkpoint_ts": checkpoint_ts,
    }


def values_of(feed: Feed) -> dict[str, Any]:
    """The column values of a feed's row."""
    return {
        "cluster_id": feed.tenant.cluster_id,
        "tenant_id": feed.tenant.tenant_id,
        "changefeed_id": feed.feed_id,
        "start_ts": feed.start_ts,
        "created_ms": feed.generation,
        **_changing(feed),
    }


def of_tenant(table: Table, key: TenantKey) -> ColumnElement[bool]:
    """The SQL condition that selects the rows of a tenant."""
    return and_(table.c.cluster_id == key.cluster_id, table.c.tenant_id == key.tenant_id)


def named(table: Table, key: TenantKey, feed_id: str) -> ColumnElement[bool]:
    """The SQL condition that selects the rows of a feed."""
    return and_(of_tenant(table, key), table.c.changefeed_id == feed_id)


def _changing(feed: Feed) -> dict[str, Any]:
    return {
        "state": feed.state,
        "sink_uri": json.dumps(feed.sink_uri),
        "config": feed.config,
        "end_ts": feed.end_ts,
        "error": None if feed.error is None else json.dumps(feed.error),
        "revision": feed.revision,
        "begin_ts": feed.begin_ts,
        "moved": None if feed.moved is None else feed.moved.model_dump_json(),
        "skips": json.dumps([one.model_dump() for one in feed.skips]) if feed.skips else None,
        "shards": feed.shards,
        "recut": None if feed.recut is None else feed.recut.model_dump_json(),
        "ended": json.dumps(dict(feed.ended)) if feed.ended else None,
        "skipped": json.dumps(dict(feed.skipped)) if feed.skipped else None,
        "applied": None if feed.applied is None else feed.applied.model_dump_json(),
    }


def _feed(row: Row[Any]) -> Feed:
    return Feed(
        TenantKey(row.cluster_id, row.tenant_id),
        row.changefeed_id,
        row.state,
        json.loads(row.sink_uri),
        row.config,
        row.start_ts,
        row.end_ts,
        row.created_ms,
        None if row.error is None else json.loads(row.error),
        row.revision,
        row.begin_ts,
        None if row.moved is None else Move.model_validate_json(row.moved),
        None if row.applied is None else Applied.model_validate_json(row.applied),
        () if row.skips is None else tuple(Skip.model_validate(one) for one in json.loads(row.skips)),
        {} if row.skipped is None else json.loads(row.skipped),
        None if row.recut is None else Recut.model_validate_json(row.recut),
        {} if row.ended is None else {name: (rows, size) for name, (rows, size) in json.loads(row.ended).items()},
        row.shards,
    )


def _shard(row: Row[Any]) -> HeldShard:
    return HeldShard(
        TenantKey(row.cluster_id, row.tenant_id),
        row.changefeed_id,
        row.shard,
        row.epoch,
        row.node_id,
        row.instance,
        row.lease_until_ms,
        row.checkpoint_ts,
        row.report,
    )
