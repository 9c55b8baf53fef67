"""Reads and writes the progress of a feed, and the fingerprints of its windows, in the server that it writes to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.schema.tidb.create_table import Dialect
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.wire.bulk.changefeeds import SHARDS_MAX
from tistream_changefeed.core import progress as records
from tistream_changefeed.core.failure import failed, fenced
from tistream_changefeed.core.progress import Fence, Progress
from tistream_changefeed.core.shard import Order
from tistream_changefeed.fingerprints import windows
from tistream_changefeed.fingerprints.rows import ROWS_VERSION
from tistream_changefeed.fingerprints.windows import SentWindow
from tistream_changefeed.sinks.mysql.connection import Slot, failure_of
from tistream_changefeed.sinks.mysql.target import (
    ADD_HOLDER,
    DDLS,
    HAS_HOLDER,
    PROGRESS,
    SYNC_TABLES,
    TABLES,
    WINDOWS,
    WINDOWS_KEPT,
    MySqlServer,
)

_COLUMN_EXISTS = 1060
_NO_TABLE = 1146
_SWEPT = 64  # windows, after which old ones are deleted
_LOCK_WAIT_S = 3


@dataclass(frozen=True, slots=True)
class Found:
    """What a server stores of a feed: its progress (None if it has none), the highest position up to which any slot may
    have written rows, and the number of the newest window."""

    progress: Progress | None
    high: Position | None
    windows: int = 0


def feed_key(order: Order) -> str:
    """The name of one shard of a feed in the tables of the sink. Each shard of a feed has a name of its own."""
    return records.record_key(order.tenant, order.feed_id, order.shard).decode()


def opened(target: MySqlTarget, server: MySqlServer, order: Order, holder: str) -> Found:
    """Take over all slots of a feed for the sink `holder`, in one transaction, which waits for the commits of the
    previous holder. Then read the progress that this one has stored. Raises FeedFailed: fenced if a newer holder has
    raised the fence. A holder with the same fence is replaced: two of them exist if the meta database was restored from
    a backup."""
    key = feed_key(order)
    try:
        _create(target, server)
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
            target.execute(
                f"UPDATE {PROGRESS} SET generation = %s, epoch = %s, holder = %s WHERE feed = %s",
                (*order.fence, holder, key),
            )
        sql = f"SELECT MAX(number) FROM {WINDOWS} WHERE feed = %s AND generation = %s"
        number = int(target.rows(sql, (key, order.fence.generation))[0][0] or 0)
    except TargetFailed as error:
        raise failure_of(error, server) from error
    stored = next((record for slot, _, _, _, record in rows if slot == 0 and record is not None), None)
    if stored is None:
        return Found(None, None, number)
    found = records.decode(order.tenant, stored.encode(), f"{server.where} {PROGRESS} {key}")
    begun = [text for _, generation, _, text, _ in rows if text and generation == order.fence.generation]
    return Found(found, max([found.at, *(_position(order.tenant, text) for text in begun)]), number)


def _create(target: MySqlTarget, server: MySqlServer) -> None:
    """Create the tables of the sink that do not exist, and add what those of an earlier release lack."""
    target.execute_all(TABLES if server.sync_retention_ms is None else (*TABLES, *SYNC_TABLES))
    if not target.rows(HAS_HOLDER):
        # The writes of all feeds wait behind an ALTER TABLE that waits for an open transaction of another program.
        limited = target.dialect is not Dialect.TIDB
        if limited:
            target.execute(f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}")
        try:
            target.execute(ADD_HOLDER)
        except TargetFailed as error:
            if error.code != _COLUMN_EXISTS:  # another worker has added it meanwhile
                raise
        finally:
            if limited:
                target.execute("SET SESSION lock_wait_timeout = DEFAULT")


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


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a server has of a feed: by shard, the progress and the highest position that any slot may have written; and
    the commit_ts of the newest DDL that was begun there. A shard without progress is left out."""

    shards: Mapping[int, tuple[Progress, Position]]
    ddl_ts: int


def state_of(target: MySqlTarget, server: MySqlServer, tenant: TenantKey, feed_id: str) -> StoredState:
    """Read what a server has of the newest feed with this id. Raises FeedFailed, TargetFailed."""
    keys = {records.record_key(tenant, feed_id, shard).decode(): shard for shard in range(SHARDS_MAX)}
    places = ", ".join(["%s"] * len(keys))
    sql = f"SELECT feed, slot, generation, begun, progress FROM {PROGRESS} WHERE feed IN ({places})"
    rows = target.rows(sql, tuple(keys))
    newest = max((generation for _, _, generation, _, _ in rows), default=0)
    shards: dict[int, tuple[Progress, Position]] = {}
    for key, slot, _, _, record in rows:
        if slot or record is None:
            continue
        progress = records.decode(tenant, record.encode(), f"{server.where} {PROGRESS} {key}")
        if progress.fence.generation == newest:
            begun = [text for of, _, generation, text, _ in rows if of == key and generation == newest and text]
            shards[keys[key]] = progress, max([progress.at, *(_position(tenant, text) for text in begun)])
    first = records.record_key(tenant, feed_id, 0).decode()  # this shard executes all DDLs
    sql = f"SELECT MAX(commit_ts) FROM {DDLS} WHERE feed = %s AND generation = %s"
    return StoredState(shards, int(target.rows(sql, (first, newest))[0][0] or 0))


def store_window(slot: Slot, order: Order, number: int, window: SentWindow) -> None:
    """Store the fingerprints of a window in the open transaction of the first slot, and delete old ones. Raises
    FeedFailed."""
    feed, generation = feed_key(order), order.fence.generation
    text = json.dumps(window.members(), separators=(",", ":"), ensure_ascii=False)
    slot.execute(
        f"INSERT INTO {WINDOWS} (feed, generation, number, version, `window`) VALUES (%s, %s, %s, %s, %s)",
        (feed, generation, number, ROWS_VERSION, text),
    )
    if not number % _SWEPT:
        slot.execute(
            f"DELETE FROM {WINDOWS} WHERE feed = %s AND (generation < %s OR generation = %s AND number <= %s)",
            (feed, generation, generation, number - WINDOWS_KEPT),
        )


def windows_of(
    target: MySqlTarget, server: MySqlServer, tenant: TenantKey, feed_id: str, shards: Mapping[int, Progress]
) -> Mapping[int, list[SentWindow]]:
    """The stored windows (fingerprints of sent events) of these shards, by shard, in the order in which they were
    committed. Empty if no holder of this release has run. Raises FeedFailed, TargetFailed."""
    found: dict[int, list[SentWindow]] = {}
    for shard, progress in shards.items():
        key = records.record_key(tenant, feed_id, shard).decode()
        sql = f"SELECT version, `window` FROM {WINDOWS} WHERE feed = %s AND generation = %s ORDER BY number"
        try:
            rows = target.rows(sql, (key, progress.fence.generation))
        except TargetFailed as error:
            if error.code != _NO_TABLE:
                raise
            return {}
        if newer := [version for version, _ in rows if version != ROWS_VERSION]:
            reason = f"its windows have version {newer[0]}; this program knows {ROWS_VERSION}: upgrade the workers"
            raise failed("sink", f"{server.where} {WINDOWS} {key}", reason)
        found[shard] = [windows.parse(json.loads(text)) for _, text in rows]
    return found


def text_of(order: Order, at: Position) -> str:
    """Encode a position as the text (a cursor) that a slot's row stores."""
    return cursors.encode(Scope(order.tenant), at)


def _position(tenant: TenantKey, text: str) -> Position:
    """The position that `text_of` stored. An unknown text is of no window of this feed."""
    try:
        return cursors.decode(Scope(tenant), text)
    except InvalidRequest:
        return Position(0)
