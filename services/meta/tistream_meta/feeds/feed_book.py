"""Changefeeds in the meta database: one row each, and one for each of their shards. feed_policy decides; this reads and
writes the rows.

Progress here is a hint for users. A worker goes on from what the sink says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, insert, select, update

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedReport, NewChangefeed, StoredState, WorkerBeat
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, tables, tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide import feed_policy
from tistream_meta.decide.feed_policy import LEASE_MS, RENEW_MS, Feed, HeldShard

_FEEDS, _SHARDS = tables.changefeeds, tables.feed_shards
Shown = tuple[Feed, HeldShard]


@dataclass(frozen=True, slots=True)
class _Beat:
    """The outcome of a beat: the shards to hold, and the rows that change."""

    held: Sequence[tuple[Feed, HeldShard]]
    shards: Sequence[HeldShard]
    feeds: Sequence[Feed]


class FeedBook:
    """Reads and writes the changefeeds in the meta database. Each call is a transaction of its own, and raises as the
    repository's calls do."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def add(self, key: TenantKey, wanted: NewChangefeed) -> tuple[Shown, bool]:
        """Add a feed with one shard; also whether it is new. Raises UnknownName, AlreadyDiffers, LimitReached."""

        def body(connection: Connection) -> tuple[Shown, bool]:
            tenant_rows.one(connection, key)
            generation = int(connection.execute(select(self._now_ms)).scalar_one())
            feed = _new(key, wanted, generation)
            known = {one.feed_id: one for one in _feeds(connection, _of(_FEEDS, key))}
            if (there := known.get(feed.feed_id)) is not None:
                feed_policy.check_same(there, feed, start_given=wanted.start_given)
                return _one(connection, key, feed.feed_id), False
            feed_policy.check_room(list(known.values()), key)
            connection.execute(insert(_FEEDS).values(_feed_values(feed)))
            connection.execute(
                insert(_SHARDS).values(
                    cluster_id=key.cluster_id,
                    tenant_id=key.tenant_id,
                    changefeed_id=feed.feed_id,
                    shard=0,
                    epoch=0,
                    instance="",
                    lease_until_ms=0,
                    checkpoint_ts=feed.start_ts,
                )
            )
            audit_log.note(connection, self._now_ms, shown.changefeed(feed), None, shown.of_changefeed(feed))
            return _one(connection, key, feed.feed_id), True

        return self._write(body)

    def of_tenant(self, key: TenantKey) -> Sequence[Shown]:
        """The feeds of a tenant, by id. Raises UnknownName."""

        def body(connection: Connection) -> Sequence[Shown]:
            tenant_rows.one(connection, key)
            shards = {one.feed_id: one for one in _shards(connection, _of(_SHARDS, key))}
            return [(feed, shards[feed.feed_id]) for feed in _feeds(connection, _of(_FEEDS, key))]

        return self._transactions.run(body)

    def one(self, key: TenantKey, feed_id: str) -> Shown:
        """A feed. Raises UnknownName."""
        return self._transactions.run(lambda connection: _one(connection, key, feed_id))

    def turn(self, key: TenantKey, feed_id: str, wanted: StoredState) -> Shown:
        """Pause or resume a feed. Idempotent. Raises UnknownName, AlreadyDiffers."""

        def body(connection: Connection) -> Shown:
            feed, _ = _one(connection, key, feed_id)
            state = feed_policy.next_state(feed, wanted)
            if state != feed.state:
                connection.execute(update(_FEEDS).where(_is(_FEEDS, key, feed_id)).values(state=state, error=None))
                # The next holder has a new epoch, so a report that is under way does not stop the feed again
                connection.execute(
                    update(_SHARDS)
                    .where(_is(_SHARDS, key, feed_id))
                    .values(node_id=None, lease_until_ms=0, report=None)
                )
                changed = replace(feed, state=state, error=None)
                audit_log.note(
                    connection,
                    self._now_ms,
                    shown.changefeed(feed),
                    shown.of_changefeed(feed),
                    shown.of_changefeed(changed),
                )
            return _one(connection, key, feed_id)

        return self._write(body)

    def remove(self, key: TenantKey, feed_id: str) -> Shown:
        """Remove a feed; its worker stops with its next beat. Raises UnknownName."""

        def body(connection: Connection) -> Shown:
            found = _one(connection, key, feed_id)
            for table in (_SHARDS, _FEEDS):
                connection.execute(delete(table).where(_is(table, key, feed_id)))
            was = shown.of_changefeed(found[0])
            audit_log.note(connection, self._now_ms, shown.changefeed(found[0]), was, None)
            return found

        return self._write(body)

    def beat(self, beat: WorkerBeat, workers: Collection[str]) -> Sequence[Shown]:
        """Take a worker's reports, and return the shards that it is to hold. `workers`: those alive and not drained."""

        def body(connection: Connection) -> Sequence[Shown]:
            found = self._judge(connection, beat, workers)
            for shard in found.shards:
                connection.execute(
                    update(_SHARDS)
                    .where(_is(_SHARDS, shard.tenant, shard.feed_id), _SHARDS.c.shard == shard.shard)
                    .values(
                        epoch=shard.epoch,
                        node_id=shard.node_id,
                        instance=shard.instance,
                        lease_until_ms=shard.lease_until_ms,
                        checkpoint_ts=shard.checkpoint_ts,
                        report=shard.report,
                    )
                )
            for feed in found.feeds:
                connection.execute(
                    update(_FEEDS)
                    .where(_is(_FEEDS, feed.tenant, feed.feed_id))
                    .values(state=feed.state, error=None if feed.error is None else json.dumps(feed.error))
                )
            return found.held

        planned = self._transactions.run(lambda connection: self._judge(connection, beat, workers))
        if not planned.shards and not planned.feeds:
            return planned.held  # the usual case: nothing is written
        return self._write(body)

    def _judge(self, connection: Connection, beat: WorkerBeat, workers: Collection[str]) -> _Beat:
        now_ms = int(connection.execute(select(self._now_ms)).scalar_one())
        ending = {one.key for one in tenant_rows.every(connection) if one.erasing or one.delete_at_ms is not None}
        feeds = {(one.tenant, one.feed_id): one for one in _feeds(connection, _FEEDS.c.state == "running")}
        stored = {one.key: one for one in _shards(connection) if (one.tenant, one.feed_id) in feeds}
        now, changed = dict(stored), dict(feeds)
        for report in beat.reports:
            key = _key(report)
            if (shard := now.get(key)) is None or not shard.of(beat.node_id, beat.instance):
                continue
            feed = changed[key[:2]]
            if (shard.epoch, feed.generation) == (report.epoch, report.shard.generation):
                now[key], changed[key[:2]] = _reported(shard, feed, report, now_ms)
        wanted = [one for key, one in now.items() if changed[key[:2]].state == "running" and one.tenant not in ending]
        held = feed_policy.assigned(wanted, beat.node_id, beat.instance, workers, now_ms)
        now |= {one.key: one for one in held}
        kept = {one.key for one in held}
        for key, one in now.items():
            if one.of(beat.node_id, beat.instance) and key not in kept:
                now[key] = replace(one, node_id=None, lease_until_ms=0)
        return _Beat(
            [(changed[one.key[:2]], now[one.key]) for one in held],
            [one for key, one in now.items() if one != stored[key]],
            [one for key, one in changed.items() if one != feeds[key]],
        )


def _reported(shard: HeldShard, feed: Feed, report: FeedReport, now_ms: int) -> tuple[HeldShard, Feed]:
    """The shard and its feed after a report of the holder."""
    before = None if shard.report is None else FeedReport.model_validate_json(shard.report)
    checkpoint_ts = max(shard.checkpoint_ts, report.checkpoint_ts or 0)
    quiet = before is not None and (before.phase, before.error) == (report.phase, report.error)
    if quiet and checkpoint_ts == shard.checkpoint_ts and shard.lease_until_ms - now_ms > RENEW_MS:
        return shard, feed
    state = feed_policy.state_after(report.phase)
    if state is not None:
        feed = replace(feed, state=state, error=report.error)
    told = replace(
        shard, lease_until_ms=now_ms + LEASE_MS, checkpoint_ts=checkpoint_ts, report=report.model_dump_json()
    )
    return (replace(told, node_id=None, lease_until_ms=0) if report.phase == "fenced" else told), feed


def _key(report: FeedReport) -> tuple[TenantKey, str, int]:
    of = report.shard
    return TenantKey(of.cluster_id, of.tenant_id), of.changefeed_id, of.shard


def _new(key: TenantKey, wanted: NewChangefeed, generation: int) -> Feed:
    end_ts = None if wanted.end_ts is None else int(wanted.end_ts)
    config = json.dumps(wanted.config, sort_keys=True)
    return Feed(key, wanted.changefeed_id, "running", wanted.sink_uri, config, int(wanted.start_ts), end_ts, generation)


def _feed_values(feed: Feed) -> dict[str, Any]:
    return {
        "cluster_id": feed.tenant.cluster_id,
        "tenant_id": feed.tenant.tenant_id,
        "changefeed_id": feed.feed_id,
        "state": feed.state,
        "sink_uri": json.dumps(feed.sink_uri),
        "config": feed.config,
        "start_ts": feed.start_ts,
        "end_ts": feed.end_ts,
        "created_ms": feed.generation,
    }


def _one(connection: Connection, key: TenantKey, feed_id: str) -> Shown:
    feeds = _feeds(connection, _is(_FEEDS, key, feed_id))
    if not feeds:
        raise UnknownName(f"tenant {key} has no changefeed {feed_id[:128]!r}; the list of its changefeeds has the ids")
    return feeds[0], _shards(connection, _is(_SHARDS, key, feed_id))[0]


def _feeds(connection: Connection, *where: ColumnElement[bool]) -> list[Feed]:
    rows = connection.execute(select(_FEEDS).where(*where).order_by(*_FEEDS.primary_key))
    return [_feed(row) for row in rows]


def _shards(connection: Connection, *where: ColumnElement[bool]) -> list[HeldShard]:
    rows = connection.execute(select(_SHARDS).where(*where).order_by(*_SHARDS.primary_key))
    return [_shard(row) for row in rows]


def _of(table: Table, key: TenantKey) -> ColumnElement[bool]:
    return and_(table.c.cluster_id == key.cluster_id, table.c.tenant_id == key.tenant_id)


def _is(table: Table, key: TenantKey, feed_id: str) -> ColumnElement[bool]:
    return and_(_of(table, key), table.c.changefeed_id == feed_id)


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
