"""Reads and writes the progress of a feed in the server that it writes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream_changefeed.core import progress as records
from tistream_changefeed.core.failure import fenced
from tistream_changefeed.core.progress import Fence, Progress
from tistream_changefeed.core.shard import Order
from tistream_changefeed.sinks.mysql.connection import failure_of
from tistream_changefeed.sinks.mysql.target import PROGRESS, SYNC_TABLES, TABLES, MySqlServer


@dataclass(frozen=True, slots=True)
class Found:
    """What a server has of a feed: its progress (None if it has none), and the highest position that any slot may have
    written."""

    progress: Progress | None
    high: Position | None


def feed_key(order: Order) -> str:
    """The name of a feed in the tables of the sink."""
    return records.record_key(order.tenant, order.feed_id, order.shard).decode()


def opened(target: MySqlTarget, server: MySqlServer, order: Order) -> Found:
    """Raise the fence of all slots of a feed, in one transaction, which waits for the commits of the holder before.
    Then read what it has written. Raises FeedFailed: fenced if a newer holder has raised the fence."""
    key = feed_key(order)
    try:
        target.execute_all(TABLES if server.sync_retention_ms is None else (*TABLES, *SYNC_TABLES))
        for slot in range(server.slots):
            target.execute(
                f"INSERT IGNORE INTO {PROGRESS} (feed, slot, generation, epoch) VALUES (%s, %s, 0, 0)", (key, slot)
            )
        with target.transaction():
            rows = target.rows(
                f"SELECT slot, generation, epoch, begun, progress FROM {PROGRESS} WHERE feed = %s FOR UPDATE", (key,)
            )
            newest = max(Fence(generation, epoch) for _, generation, epoch, _, _ in rows)
            if newest > order.fence:
                raise fenced(server.where, f"a holder with epoch {newest.epoch} owns the feed")
            target.execute(f"UPDATE {PROGRESS} SET generation = %s, epoch = %s WHERE feed = %s", (*order.fence, key))
    except TargetFailed as error:
        raise failure_of(error, server) from error
    stored = next((record for slot, _, _, _, record in rows if slot == 0 and record is not None), None)
    if stored is None:
        return Found(None, None)
    found = records.decode(order.tenant, stored.encode(), f"{server.where} {PROGRESS} {key}")
    begun = [text for _, generation, _, text, _ in rows if text and generation == order.fence.generation]
    return Found(found, max([found.at, *(_position(order.tenant, text) for text in begun)]))


def of_shards(target: MySqlTarget, server: MySqlServer, order: Order, shards: int) -> Mapping[int, Progress]:
    """The progress of those of the first `shards` shards of the feed that have any, by shard. Raises FeedFailed."""
    keys = {feed_key(replace(order, shard=shard)): shard for shard in range(shards)}
    places = ", ".join(["%s"] * len(keys))
    sql = f"SELECT feed, progress FROM {PROGRESS} WHERE slot = 0 AND progress IS NOT NULL AND feed IN ({places})"
    try:
        rows = target.rows(sql, tuple(keys))
    except TargetFailed as error:
        raise failure_of(error, server) from error
    where = f"{server.where} {PROGRESS}"
    return {keys[key]: records.decode(order.tenant, text.encode(), f"{where} {key}") for key, text in rows}


def states_of(
    target: MySqlTarget, server: MySqlServer, tenant: TenantKey, feed_id: str, shards: int
) -> Mapping[int, tuple[Progress, Position]]:
    """The progress of each shard of a feed that has any, and the highest position that any of its slots may have
    written. Raises FeedFailed, TargetFailed."""
    found = {}
    for shard in range(shards):
        key = records.record_key(tenant, feed_id, shard).decode()
        rows = target.rows(f"SELECT slot, generation, begun, progress FROM {PROGRESS} WHERE feed = %s", (key,))
        stored = next((record for slot, _, _, record in rows if slot == 0 and record is not None), None)
        if stored is not None:
            progress = records.decode(tenant, stored.encode(), f"{server.where} {PROGRESS} {key}")
            begun = [text for _, generation, text, _ in rows if text and generation == progress.fence.generation]
            found[shard] = progress, max([progress.at, *(_position(tenant, text) for text in begun)])
    return found


def text_of(order: Order, at: Position) -> str:
    """A position as it is stored in a slot's row."""
    return cursors.encode(Scope(order.tenant), at)


def _position(tenant: TenantKey, text: str) -> Position:
    """The position that `text_of` stored. An unknown text is of no window of this feed."""
    try:
        return cursors.decode(Scope(tenant), text)
    except InvalidRequest:
        return Position(0)
