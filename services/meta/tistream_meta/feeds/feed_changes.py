"""Computes how a changefeed is stored after a change by a user, and the event that records the change. Pure. Each
change raises the feed's revision. The worker that opens the sink next applies the revision from the sink's checkpoint
on, in the transaction that fences the previous worker, and reports that ts (docs/changefeeds.md, "Changing a feed")."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from tistream.errors import AlreadyDiffers, InvalidRequest, LimitReached
from tistream.model.ts import physical_ms
from tistream.wire.bulk.changefeeds import Applied, FeedReport, Move, Skip, StoppedTableInfo, StoredState
from tistream.wire.bulk.feed_changes import SKIPS_MAX, ChangedFeed, Happening, What
from tistream_meta.decide.feed_policy import Feed, HeldShard
from tistream_meta.feeds import feed_shards

_OF_FILES = ("s3", "file", "iceberg")  # schemes of sinks
_ONCE = "iceberg"  # the scheme of sinks that take no event again

_NAMED: dict[str, What] = {"running": "running", "retrying": "retrying", "failed": "failed", "finished": "finished"}


def paused(feed: Feed, shard: HeldShard) -> Feed:
    """The feed after a user has paused it. `shard` combines the feed's shards. If tables have stopped in a feed with
    several shards, it gets another revision, under which all shards retry them once it is resumed. A paused feed stays
    as it is. Raises AlreadyDiffers if the feed has finished."""
    if feed.state == "finished":
        raise AlreadyDiffers(f"changefeed {feed.feed_id} has reached its end_ts: there is nothing to pause")
    if feed.state == "paused":
        return feed
    return replace(feed, state="paused", error=None, revision=_retrying(feed, shard))


def resumed(feed: Feed, shard: HeldShard, checkpoint_ts: int | None) -> Feed:
    """The feed after a user has resumed it. With `checkpoint_ts` its checkpoint is moved there, from that of `shard`,
    which combines the feed's shards. If it has failed, and tables have stopped before, its revision is as in
    `paused`.

    Raises:
        AlreadyDiffers: the feed has finished, or the checkpoint of a running feed would be moved.
        InvalidRequest: the move would leave nothing to send, or the sink takes no event again.
    """
    if checkpoint_ts is None:
        if feed.state == "finished":
            raise AlreadyDiffers(
                f"changefeed {feed.feed_id} has reached its end_ts: update end_ts, or resume with a checkpoint_ts "
                "to send again"
            )
        revision = feed.revision if feed.state == "running" else _retrying(feed, shard)
        return replace(feed, state="running", error=None, revision=revision)
    if feed.end_ts is not None and checkpoint_ts >= feed.end_ts:
        raise InvalidRequest(
            f"checkpoint_ts {checkpoint_ts} is not below end_ts {feed.end_ts}: nothing would be sent",
            {"parameter": "checkpoint_ts"},
        )
    if feed.state == "running":
        if feed.moved is not None and feed.moved == Move(revision=feed.revision, ts=checkpoint_ts):
            return feed  # the same call again
        raise AlreadyDiffers(f"changefeed {feed.feed_id} runs: pause it, and then move its checkpoint")
    if checkpoint_ts < shard.checkpoint_ts and urlsplit(feed.sink_uri).scheme == _ONCE:
        raise InvalidRequest(
            f"checkpoint_ts {checkpoint_ts} is below {shard.checkpoint_ts}, the checkpoint of changefeed "
            f"{feed.feed_id}: an Iceberg table has each event once; for a replay create another changefeed, with "
            "another namespace",
            {"parameter": "checkpoint_ts"},
        )
    revision = feed.highest_revision + 1
    return replace(
        feed, state="running", error=None, revision=revision, moved=Move(revision=revision, ts=checkpoint_ts)
    )


def _retrying(feed: Feed, shard: HeldShard) -> int:
    """The revision under which a feed retries its tables that have stopped: with one shard, its present one."""
    report = None if shard.report is None else FeedReport.model_validate_json(shard.report)
    stopped = report is not None and not all(one.left for one in report.stopped)
    return feed.highest_revision + 1 if stopped and feed_shards.shard_count(feed) > 1 else feed.revision


def updated(feed: Feed, wanted: ChangedFeed, checkpoint_ts: int) -> Feed:
    """The feed after a user has changed its sink, configuration or end. `checkpoint_ts` is the feed's checkpoint in its
    present sink. A finished feed whose end is moved to a later ts becomes paused.

    Raises:
        AlreadyDiffers: the feed runs, or has another revision than the caller has seen.
        InvalidRequest: the end_ts, or a number of shards in the configuration, is invalid.
    """
    if feed.state == "running":
        raise AlreadyDiffers(f"changefeed {feed.feed_id} runs: pause it, update it, and resume it")
    end_ts = None if wanted.end_ts is None else int(wanted.end_ts)
    recut = feed_shards.cut_order(feed, wanted.sink_uri, wanted.config, checkpoint_ts)
    shards = feed_shards.by_load(feed, wanted.config)
    config = json.dumps(wanted.config, sort_keys=True)
    changed = replace(feed, sink_uri=wanted.sink_uri, config=config, end_ts=end_ts, recut=recut, shards=shards)
    if changed == feed:
        return feed
    if wanted.revision != feed.revision:
        raise AlreadyDiffers(
            f"changefeed {feed.feed_id} was changed by another request since it was read: look at it, and update it "
            "again"
        )
    finished = feed.state == "finished"
    if end_ts is not None and end_ts != feed.end_ts and end_ts <= max(checkpoint_ts, feed.start_ts):
        raise InvalidRequest(
            f"end_ts {end_ts} is not above the checkpoint {checkpoint_ts} of the changefeed: nothing would be sent",
            {"parameter": "end_ts"},
        )
    if finished and end_ts != feed.end_ts:
        changed = replace(changed, state="paused")
    if wanted.sink_uri != feed.sink_uri:
        changed = _elsewhere(changed, checkpoint_ts)
    return replace(changed, revision=feed.highest_revision + 1)


def skipping(feed: Feed, skip: Skip) -> Feed:
    """The feed with one more event that it must leave out; unchanged if it has the event. Raises LimitReached,
    AlreadyDiffers if the feed has finished, InvalidRequest if its sink does not leave out events."""
    if urlsplit(feed.sink_uri).scheme in _OF_FILES:
        raise InvalidRequest(
            f"changefeed {feed.feed_id} writes files or Iceberg tables, and leaves out no event by name: leave out its "
            "table by filter.rules"
        )
    if any(_same(one, skip) for one in feed.skips):
        return feed
    if feed.state == "finished":
        raise AlreadyDiffers(f"changefeed {feed.feed_id} has reached its end_ts: there is nothing to skip")
    if len(feed.skips) >= SKIPS_MAX:
        raise LimitReached(
            f"changefeed {feed.feed_id} skips {len(feed.skips)} events, and {SKIPS_MAX} is the maximum: leave the "
            "table out by a rule"
        )
    return replace(feed, skips=(*feed.skips, skip), revision=feed.highest_revision + 1)


def _same(one: Skip, other: Skip) -> bool:
    return one == other.model_copy(update={"reason": one.reason})


def _elsewhere(feed: Feed, checkpoint_ts: int) -> Feed:
    """The feed after a change of its sink URI, which may name another sink. If that sink has no progress, the feed
    begins at the checkpoint that it had in the previous sink. A move of the checkpoint that no worker has applied yet
    stays due; a move that was applied is not repeated in the new sink."""
    done = 0 if feed.applied is None else feed.applied.revision
    if feed.moved is not None and feed.moved.revision > done:
        return feed
    return replace(feed, begin_ts=checkpoint_ts, moved=None)


def checkpoint_after(feed: Feed, changed: Feed, checkpoint_ts: int) -> int | None:
    """The checkpoint that is stored for every shard of a feed after a change, for users to see; None if it does not
    change. `checkpoint_ts` is the present one. A move back is shown at once, a move forward only once the sink has
    stored it (invariant 39). In another sink all shards begin at one ts."""
    if changed.begin_ts != feed.begin_ts:
        return changed.begin_ts
    if changed.moved is None or changed.moved == feed.moved:
        return None
    return min(checkpoint_ts, changed.moved.ts)


# ---- events


def change_event(before: Feed, after: Feed) -> Happening | None:
    """The event for the feed's history that records what a user has changed; None if nothing was changed."""
    if before == after:
        return None
    moved = after.moved is not None and after.moved != before.moved
    if moved and after.moved is not None:
        return Happening(what="resumed", revision=after.revision, after_ts=str(after.moved.ts),
                         reason=f"the checkpoint is moved to {after.moved.ts}")  # fmt: skip
    if after.skips != before.skips:
        skip = after.skips[-1]
        event = f"DDL job {skip.ddl_job}" if skip.key is None else f"key {skip.key}"
        reason = f"{skip.table}, commit_ts {skip.commit_ts}, {event}: {skip.reason}"
        return Happening(what="skipped", revision=after.revision, reason=reason)
    names = ("sink_uri", "config", "end_ts")
    changed = ", ".join(name for name in names if getattr(before, name) != getattr(after, name))
    if changed:
        return Happening(what="updated", revision=after.revision, reason=changed)
    return Happening(what="paused" if after.state == "paused" else "resumed")


def report_events(
    before: FeedReport | None,
    report: FeedReport,
    others: Sequence[FeedReport | None],
    applied: Applied | None,
    known: Applied | None,
    state: StoredState | None,
) -> list[Happening]:
    """The events for the feed's history that follow from a worker's report. `before` is the previous report of this
    shard, and `others` are those of the feed's other shards. `applied` is the revision that all shards have applied,
    and `state` the feed's new state; None if unchanged. If `applied` differs from `known`, which was recorded before,
    an event says that the revision is in force."""
    found = []
    if applied is not None and applied != known:
        found.append(_in_force(applied))
    unfinished = report.phase == "finished" != state
    if report.phase in _NAMED and not unfinished and report.phase != ("running" if before is None else before.phase):
        found.append(Happening(what=_NAMED[report.phase], reason=report.error))
    there = [one for one in others if one is not None]
    was, now = ([*there, *([] if one is None else [one])] for one in (before, report))
    return [*found, *_tables(feed_shards.stopped(was), feed_shards.stopped(now))]


def _tables(before: Sequence[StoppedTableInfo], now: Sequence[StoppedTableInfo]) -> list[Happening]:
    """The events that record which tables have stopped, and which have continued. `before`, `now`: those that have
    stopped according to all shards of the feed."""
    reasons = {(one.database, one.table, one.reason) for one in before}
    names = {(one.database, one.table) for one in now}
    new = [one for one in now if (one.database, one.table, one.reason) not in reasons]
    gone = {(one.database, one.table): one for one in before if (one.database, one.table) not in names}.values()
    return [
        *(Happening(what="table-stopped", reason=f"{_table(one)}: {one.reason}") for one in new),
        *(Happening(what="table-goes-on", reason=_table(one), from_ts=one.checkpoint_ts) for one in gone),
    ]


def _table(one: StoppedTableInfo) -> str:
    left = ", left" if one.left else ""
    return f"{one.database}.{one.table or '*'} ({one.checkpoint_ts}{left})"


def cut_event(before: Feed, after: Feed) -> Happening:
    """The event for the feed's history that records that its shards were replaced by another number of shards."""
    at_ts = None if after.moved is None else str(after.moved.ts)
    counts = feed_shards.shard_count(before), feed_shards.shard_count(after)
    reason = f"{counts[0]} shards have stopped at one ts, and {counts[1]} continue"
    return Happening(what="cut", revision=after.revision, after_ts=at_ts, reason=reason)


def held_event(shard: HeldShard) -> Happening:
    """The event for the feed's history that records that a worker begins to hold this shard."""
    return Happening(what="held", reason=f"worker {shard.node_id}, epoch {shard.epoch}")


def _in_force(applied: Applied) -> Happening:
    seconds = abs(physical_ms(applied.after_ts) - physical_ms(applied.from_ts)) / 1000
    if applied.after_ts > applied.from_ts:
        reason = f"a gap that was asked for: events of {seconds:.1f} s are not in the sink"
    elif applied.after_ts < applied.from_ts:
        reason = f"a replay that was asked for: events of {seconds:.1f} s are sent again"
    else:
        reason = None
    return Happening(
        what="applied",
        revision=applied.revision,
        from_ts=str(applied.from_ts),
        after_ts=str(applied.after_ts),
        reason=reason,
    )
