"""Stores changefeeds in the meta database: one row for each feed, and one for each of its shards. feed_policy.py
decides; this module reads and writes the rows. The progress that is stored here is for users only: a worker continues
from the progress that it reads in the sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from tistream.errors import QuotaReached, UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedReport, NewChangefeed, Skip, WorkerBeat
from tistream.wire.bulk.feed_changes import ChangedFeed, FeedEvent, Happening
from tistream.wire.usage import hour_of
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, tables, tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide import feed_policy
from tistream_meta.decide.feed_policy import LEASE_MS, RENEW_MS, Feed, HeldShard
from tistream_meta.feeds import feed_changes, feed_events, feed_rows, feed_shards, feed_usage, kept_feeds, secret_rows
from tistream_meta.feeds.feed_rows import FEEDS as _FEEDS
from tistream_meta.feeds.feed_rows import SHARDS as _SHARDS
from tistream_meta.feeds.feed_rows import Shown

_ShardKey = tuple[TenantKey, str, int]


@dataclass(frozen=True, slots=True)
class _Beat:
    """What follows from a worker's beat: the shards that it must hold, and the rows that change."""

    held: Sequence[tuple[Feed, HeldShard]]
    shards: Sequence[HeldShard]
    feeds: Sequence[tuple[Feed, Feed]]  # before and after
    events: Sequence[tuple[Feed, Happening]]
    reported: Sequence[tuple[Feed, FeedReport]]  # reports that are stored


class FeedBook:
    """Reads and writes the changefeeds in the meta database. Each call is a transaction of its own, and raises the
    errors of the repository's calls."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def add(self, key: TenantKey, wanted: NewChangefeed) -> tuple[Shown, bool]:
        """Add a feed with its shards. Returns ((the feed, its shards combined into one), whether the feed is new).
        Raises UnknownName; AlreadyDiffers if another feed has this id, or uses one of its secrets; InvalidRequest if
        its configuration has a wrong number of shards; LimitReached, QuotaReached."""

        def body(connection: Connection) -> tuple[Shown, bool]:
            limits = tenant_rows.one(connection, key).limits
            generation = int(connection.execute(select(self._now_ms)).scalar_one())
            feed = _new(key, wanted, generation)
            known = {one.feed_id: one for one in feed_rows.feeds(connection, feed_rows.of_tenant(_FEEDS, key))}
            if (there := known.get(feed.feed_id)) is not None:
                feed_policy.check_same(there, feed, start_given=wanted.start_given)
                return feed_rows.one(connection, key, feed.feed_id), False
            feed_policy.check_room(list(known.values()), key)
            kept = kept_feeds.taken(connection, key, feed.feed_id)
            continued = kept is not None and not wanted.start_given
            epoch, feed = (kept.epoch, kept.continued(feed)) if kept is not None and continued else (0, feed)
            feed_shards.shards_max(wanted.config)  # a wrong number is refused
            shards = feed_shards.shard_count(feed)
            had = len(feed_rows.shards(connection, feed_rows.of_tenant(_SHARDS, key)))
            feed_policy.check_quotas(limits, key, len(known) + 1, had + shards)
            secret_rows.put_of_feed(connection, self._now_ms, key, feed.feed_id, wanted.secrets)
            connection.execute(insert(_FEEDS).values(feed_rows.values_of(feed)))
            for shard in range(shards):
                connection.execute(insert(_SHARDS).values(feed_rows.new_shard(feed, shard, epoch, feed.start_ts)))
            reason = "it continues from the progress that was kept when it was removed" if continued else None
            created = Happening(what="created", after_ts=str(feed.start_ts), reason=reason)
            feed_events.note(connection, self._now_ms, feed, created)
            audit_log.note(connection, self._now_ms, shown.changefeed(feed), None, shown.of_changefeed(feed))
            return feed_rows.one(connection, key, feed.feed_id), True

        return self._write(body)

    def of_tenant(self, key: TenantKey) -> Sequence[Shown]:
        """The feeds of a tenant, by id, each with its shards combined into one (feed_shards.combined). Raises
        UnknownName."""

        def body(connection: Connection) -> Sequence[Shown]:
            tenant_rows.one(connection, key)
            shards: dict[str, list[HeldShard]] = {}
            for one in feed_rows.shards(connection, feed_rows.of_tenant(_SHARDS, key)):
                shards.setdefault(one.feed_id, []).append(one)
            return [
                (feed, feed_shards.combined(shards[feed.feed_id]))
                for feed in feed_rows.feeds(connection, feed_rows.of_tenant(_FEEDS, key))
            ]

        return self._transactions.run(body)

    def one(self, key: TenantKey, feed_id: str) -> Shown:
        """A feed, with its shards combined into one (feed_shards.combined). Raises UnknownName."""
        return self._transactions.run(lambda connection: feed_rows.one(connection, key, feed_id))

    def pause(self, key: TenantKey, feed_id: str) -> Shown:
        """Pause a feed. Idempotent. Returns the stored feed, with its shards combined into one. Raises UnknownName, and
        AlreadyDiffers if the feed has finished."""
        return self._change(key, feed_id, feed_changes.paused)

    def resume(self, key: TenantKey, feed_id: str, checkpoint_ts: int | None = None) -> Shown:
        """Resume a feed; with `checkpoint_ts` move its checkpoint. Idempotent. Returns the stored feed, with its shards
        combined into one. Raises UnknownName, and the errors of feed_changes.resumed."""
        return self._change(key, feed_id, lambda feed, shard: feed_changes.resumed(feed, shard, checkpoint_ts))

    def update(self, key: TenantKey, feed_id: str, wanted: ChangedFeed) -> Shown:
        """Change a feed that does not run. Idempotent. Returns the stored feed, with its shards combined into one.
        Raises UnknownName; the errors of feed_changes.updated; QuotaReached if the tenant may not have its new shards;
        AlreadyDiffers or LimitReached if its secrets cannot be stored."""
        return self._change(
            key,
            feed_id,
            lambda feed, shard: feed_changes.updated(feed, wanted, shard.checkpoint_ts),
            secrets=wanted.secrets,
        )

    def skip(self, key: TenantKey, feed_id: str, skip: Skip) -> Shown:
        """Store that a feed must leave out this event, for example one that its sink refuses. Idempotent. Returns the
        stored feed, with its shards combined into one. Raises UnknownName; AlreadyDiffers if the feed has finished;
        LimitReached if it skips too many events; InvalidRequest if its sink does not leave out events."""
        return self._change(key, feed_id, lambda feed, _: feed_changes.skipping(feed, skip))

    def events(self, key: TenantKey, feed_id: str) -> Sequence[FeedEvent]:
        """The events in the history of a feed, newest first. Raises UnknownName."""

        def body(connection: Connection) -> Sequence[FeedEvent]:
            feed_rows.one(connection, key, feed_id)
            return feed_events.newest(connection, key, feed_id)

        return self._transactions.run(body)

    def _change(
        self,
        key: TenantKey,
        feed_id: str,
        change: Callable[[Feed, HeldShard], Feed],
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> Shown:
        """Change a feed, and end the leases of its workers. `change` is called with the feed and its combined shards,
        and returns the changed feed. `secrets` are encrypted texts, by name, that are stored with the feed."""

        def body(connection: Connection) -> Shown:
            feed, shard = feed_rows.one(connection, key, feed_id)
            changed = change(feed, shard)
            self._check_shards(connection, feed, changed)
            secret_rows.put_of_feed(connection, self._now_ms, key, feed_id, secrets)
            happening = feed_changes.change_event(feed, changed)
            if happening is not None:
                feed_rows.store(connection, changed)
                checkpoint_ts = feed_changes.checkpoint_after(feed, changed, shard.checkpoint_ts)
                feed_rows.release(connection, changed, checkpoint_ts)
                feed_events.note(connection, self._now_ms, changed, happening)
                was, became = shown.of_changefeed(feed), shown.of_changefeed(changed)
                audit_log.note(connection, self._now_ms, shown.changefeed(feed), was, became)
            return feed_rows.one(connection, key, feed_id)

        return self._write(body)

    def resize(self, key: TenantKey, feed_id: str, shards: int) -> bool:
        """Order that a running feed gets another number of shards; its present shards stop first. Returns whether this
        was ordered. It is not if the feed does not run, was removed, has this number already, or waits for an earlier
        change of its shards, or if the tenant's quota forbids it."""

        def body(connection: Connection) -> bool:
            try:
                feed, shard = feed_rows.one(connection, key, feed_id)
                changed = feed_shards.resized(feed, shards, shard.checkpoint_ts)
                self._check_shards(connection, feed, changed)
            except (UnknownName, QuotaReached):
                return False
            if feed.state != "running" or feed.recut is not None or shards == feed_shards.shard_count(feed):
                return False
            feed_rows.store(connection, changed)
            feed_rows.release(connection, changed)
            return True

        return self._write(body)

    def _check_shards(self, connection: Connection, feed: Feed, changed: Feed) -> None:
        """Check the tenant's quota of shards, if a change of a feed adds some. Raises QuotaReached."""
        wanted = feed_shards.target_shards(changed)
        if wanted > feed_shards.target_shards(feed):
            had = len(feed_rows.shards(connection, feed_rows.of_tenant(_SHARDS, feed.tenant)))
            limits = tenant_rows.one(connection, feed.tenant).limits
            feed_policy.check_quotas(limits, feed.tenant, 0, had - feed_shards.shard_count(feed) + wanted)

    def remove(self, key: TenantKey, feed_id: str, *, keep_progress: bool = False) -> Shown:
        """Remove a feed, and return what was stored of it; its workers stop at their next beat. With `keep_progress` a
        feed that is created again under this id, without a start_ts, continues from the progress in the sink. Raises
        UnknownName."""

        def body(connection: Connection) -> Shown:
            found = feed_rows.one(connection, key, feed_id)
            if keep_progress:
                kept_feeds.keep(connection, self._now_ms, found[0])
            for table in (tables.feed_events, _SHARDS, _FEEDS):
                connection.execute(delete(table).where(feed_rows.named(table, key, feed_id)))
            secret_rows.remove_of_feed(connection, self._now_ms, key, feed_id)
            was = shown.of_changefeed(found[0])
            audit_log.note(connection, self._now_ms, shown.changefeed(found[0]), was, None)
            return found

        return self._write(body)

    def beat(self, beat: WorkerBeat, workers: Collection[str]) -> Sequence[Shown]:
        """Apply a worker's reports, and return the shards that the worker must hold, each with its feed. Leases and
        progress are written only if something has changed, or if a lease ends in less than RENEW_MS. `workers` are the
        live workers that are not being drained."""

        def body(connection: Connection) -> Sequence[Shown]:
            found = self._judge(connection, beat, workers)
            for shard in found.shards:
                connection.execute(
                    update(_SHARDS)
                    .where(feed_rows.named(_SHARDS, shard.tenant, shard.feed_id), _SHARDS.c.shard == shard.shard)
                    .values(
                        epoch=shard.epoch,
                        node_id=shard.node_id,
                        instance=shard.instance,
                        lease_until_ms=shard.lease_until_ms,
                        checkpoint_ts=shard.checkpoint_ts,
                        report=shard.report,
                    )
                )
            for before, feed in found.feeds:
                feed_rows.store(connection, feed)
                if feed.recut != before.recut:
                    self._cut(connection, before, feed)
            hour_ms = hour_of(int(connection.execute(select(self._now_ms)).scalar_one()))
            for feed, report in found.reported:
                feed_usage.note(connection, hour_ms, feed, report)
            for feed, event in found.events:
                feed_events.note(connection, self._now_ms, feed, event)
            return found.held

        planned = self._transactions.run(lambda connection: self._judge(connection, beat, workers))
        if not planned.shards and not planned.feeds:
            return planned.held  # the usual case: nothing is written
        return self._write(body)

    def _cut(self, connection: Connection, before: Feed, feed: Feed) -> None:
        """End the leases of a feed whose shards have all stopped. If they have stopped at the same ts, give the feed
        its new shards, with epochs that no shard of the feed has had."""
        if feed.recut is not None:
            feed_rows.release(connection, feed)
            return
        assert feed.moved is not None
        feed_rows.cut(connection, feed, feed_shards.shard_count(feed), feed.moved.ts)
        feed_events.note(connection, self._now_ms, feed, feed_changes.cut_event(before, feed))

    def _judge(self, connection: Connection, beat: WorkerBeat, workers: Collection[str]) -> _Beat:
        now_ms = int(connection.execute(select(self._now_ms)).scalar_one())
        ending = {one.key for one in tenant_rows.every(connection) if one.erasing or one.delete_at_ms is not None}
        feeds = {(one.tenant, one.feed_id): one for one in feed_rows.feeds(connection, _FEEDS.c.state == "running")}
        stored = {one.key: one for one in feed_rows.shards(connection) if (one.tenant, one.feed_id) in feeds}
        now, changed = dict(stored), dict(feeds)
        events: list[tuple[Feed, Happening]] = []
        reports: list[tuple[Feed, FeedReport]] = []
        siblings: dict[tuple[TenantKey, str], list[_ShardKey]] = {}
        for one_key in stored:
            siblings.setdefault(one_key[:2], []).append(one_key)
        for report in beat.reports:
            key = _key(report)
            if (shard := now.get(key)) is None or not shard.held_by(beat.node_id, beat.instance):
                continue
            feed = changed[key[:2]]
            if (shard.epoch, feed.generation) == (report.epoch, report.shard.generation):
                others = [now[one] for one in siblings[key[:2]] if one != key]
                now[key], changed[key[:2]], reported = _reported(shard, others, feed, report, now_ms)
                events += [(feed, one) for one in reported]
                reports += [(feed, report)] if now[key] is not shard else []
        wanted = [one for key, one in now.items() if changed[key[:2]].state == "running" and one.tenant not in ending]
        held = feed_policy.assigned(wanted, beat.node_id, beat.instance, workers, now_ms)
        taken = [one for one in held if one.epoch != now[one.key].epoch]
        events += [(changed[one.key[:2]], feed_changes.held_event(one)) for one in taken]
        now |= {one.key: one for one in held}
        kept = {one.key for one in held}
        for key, one in now.items():
            if one.held_by(beat.node_id, beat.instance) and key not in kept:
                now[key] = replace(one, node_id=None, lease_until_ms=0)
        met = {key for key, one in changed.items() if one.recut != feeds[key].recut}
        return _Beat(
            [(changed[one.key[:2]], now[one.key]) for one in held if one.key[:2] not in met],
            [one for key, one in now.items() if one != stored[key]],
            [(feeds[key], one) for key, one in changed.items() if one != feeds[key]],
            events,
            reports,
        )


def _reported(
    shard: HeldShard, others: Sequence[HeldShard], feed: Feed, report: FeedReport, now_ms: int
) -> tuple[HeldShard, Feed, Sequence[Happening]]:
    """Apply a report of the worker that holds the shard. Returns the changed shard, the changed feed, and the events
    that follow from the report. `others` are the feed's other shards."""
    before = None if shard.report is None else FeedReport.model_validate_json(shard.report)
    checkpoint_ts = max(shard.checkpoint_ts, report.checkpoint_ts or 0)
    reported = [None if one.report is None else FeedReport.model_validate_json(one.report) for one in others]
    together = [report, *reported]
    applied, state = feed_shards.applied(together), feed_shards.state_after(together)
    meets = state == "finished" and feed.recut is not None and feed_shards.end_ts(feed) != feed.end_ts
    state = None if meets else state
    happenings = feed_changes.report_events(before, report, reported, applied, feed.applied, state)
    told = (report.phase, report.error, report.stopped)
    quiet = before is not None and (before.phase, before.error, before.stopped) == told and not happenings
    if quiet and checkpoint_ts == shard.checkpoint_ts and shard.lease_until_ms - now_ms > RENEW_MS:
        return shard, feed_shards.postponed(feed, together), ()
    feed = feed_shards.continued_cut(feed, together) if meets else feed_shards.postponed(feed, together)
    if state is not None:
        feed = replace(feed, state=state, error=feed_shards.failure_of(together))
    if applied is not None:
        feed = replace(feed, applied=applied)
    feed = feed_shards.with_skipped(feed, shard.shard, report.skipped)
    text = json.dumps(report.model_dump())  # the column is ASCII
    renewed = replace(shard, lease_until_ms=now_ms + LEASE_MS, checkpoint_ts=checkpoint_ts, report=text)
    ended = report.phase == "fenced"
    return (replace(renewed, node_id=None, lease_until_ms=0) if ended else renewed), feed, happenings


def _key(report: FeedReport) -> _ShardKey:
    of = report.shard
    return TenantKey(of.cluster_id, of.tenant_id), of.changefeed_id, of.shard


def _new(key: TenantKey, wanted: NewChangefeed, generation: int) -> Feed:
    end_ts = None if wanted.end_ts is None else int(wanted.end_ts)
    config = json.dumps(wanted.config, sort_keys=True)
    return Feed(key, wanted.changefeed_id, "running", wanted.sink_uri, config, int(wanted.start_ts), end_ts, generation)
