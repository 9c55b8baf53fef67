"""Combines the shards of a changefeed to the progress and state that users see, and computes the feed's state after a
report. Pure.

To *cut* a feed is to replace its shards, because their number or that of the topic's partitions changes. The old shards
first send all events up to one ts, and stop there; the new ones begin at that ts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tistream.errors import InvalidRequest
from tistream.model.ts import from_physical_ms
from tistream.wire.bulk.changefeeds import (
    SHARDS_MAX,
    Applied,
    FeedReport,
    Move,
    Phase,
    Recut,
    StoppedTableInfo,
    StoredState,
)
from tistream_meta.decide.feed_policy import Feed, HeldShard

POSTPONED_MS = 60_000  # of the pool's time, by which a cut is postponed each time

_WORST: tuple[Phase, ...] = ("failed", "retrying", "fenced", "running", "finished")  # the first one is shown


def configured_shards(config: Mapping[str, Any]) -> int:
    """The number of shards that a configuration states (`shards` in `[tistream]`). Raises InvalidRequest."""
    return _number("shards", _own(config, "shards", 1))


def _number(name: str, found: object) -> int:
    text = str(found)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= SHARDS_MAX:
        raise InvalidRequest(
            f"config: tistream.{name} is not a whole number from 1 to {SHARDS_MAX}", {"parameter": "config"}
        )
    return int(text)


def shards_max(config: Mapping[str, Any]) -> int | None:
    """The highest number of shards that a feed may get because of its load (`shards-max` in `[tistream]`); None if its
    number of shards is fixed. Raises InvalidRequest."""
    found = _own(config, "shards-max", None)
    return None if found is None else _number("shards-max", found)


def cut_order(feed: Feed, sink_uri: str, config: Mapping[str, Any], checkpoint_ts: int) -> Recut | None:
    """The order to cut a feed that gets another sink URI and configuration; None if it keeps its shards. A feed is cut
    if the number of its shards changes, or the number of partitions, if a feed announces such changes in the topic
    (`admin-events`). `checkpoint_ts`: the feed's checkpoint, at which its present shards stop at the earliest. Raises
    InvalidRequest if the configuration has a wrong number of shards."""
    was, before = shard_count(feed), json.loads(feed.config)
    becomes = by_load(feed, config) or configured_shards(config)
    announced = bool(_own(config, "admin-events", False))
    grows = announced and _partitions(sink_uri, config) != _partitions(feed.sink_uri, before)
    grows = grows or (feed.recut is not None and feed.recut.grows)
    if was == becomes and not grows:
        return None
    return (feed.recut or Recut(shards=was, at_ts=checkpoint_ts)).model_copy(update={"grows": grows})


def _partitions(sink_uri: str, config: Mapping[str, Any]) -> str | None:
    """The number of partitions that the URI or the configuration states."""
    stated = parse_qs(urlsplit(sink_uri).query).get("partition-num")
    sink = config.get("sink")
    kafka = sink.get("kafka-config") if isinstance(sink, Mapping) else None
    found = kafka.get("partition-num") if isinstance(kafka, Mapping) else None
    found = config.get("sink.kafka-config.partition-num", found)
    return stated[0] if stated else None if found is None else str(found)


def _own(config: Mapping[str, Any], name: str, default: object) -> object:
    """The value of a key of `[tistream]`."""
    own = config.get("tistream")
    return config.get(f"tistream.{name}", own.get(name, default) if isinstance(own, Mapping) else default)


def shard_count(feed: Feed) -> int:
    """The number of shards that a feed has now."""
    return target_shards(feed) if feed.recut is None else feed.recut.shards


def target_shards(feed: Feed) -> int:
    """The number of shards that a feed must have: its present number, or the one that it gets when it is cut."""
    return feed.shards or configured_shards(json.loads(feed.config))


def by_load(feed: Feed, config: Mapping[str, Any]) -> int | None:
    """The number of shards that a feed keeps under this new configuration because its load required them; None if the
    configuration states the same number, or fixes it."""
    highest = shards_max(config)
    found = configured_shards(config) if highest is None else min(target_shards(feed), highest)
    return None if found == configured_shards(config) else found


def resized(feed: Feed, shards: int, checkpoint_ts: int) -> Feed:
    """The feed with the order to cut it into `shards` shards. The present ones stop at `checkpoint_ts`, or at the
    highest ts above it that one of them has reached."""
    return replace(feed, shards=shards, recut=Recut(shards=shard_count(feed), at_ts=checkpoint_ts))


def end_ts(feed: Feed) -> int | None:
    """The ts at which the feed's shards stop; None if they have no end."""
    ends = [ts for ts in (feed.end_ts, None if feed.recut is None else feed.recut.at_ts) if ts is not None]
    return min(ends, default=None)


def continued_cut(feed: Feed, reports: Sequence[FeedReport | None]) -> Feed:
    """Continue the cut of a feed whose shards have all reported that they stopped. If they stopped at the same ts, the
    result has the new number of shards, which begin at that ts: no new shard sends what an old one has sent, and no
    event is left out. Otherwise the result orders the old shards to continue to the highest ts that one of them has
    reached. If a worker of an earlier release has not reported where its shard stopped, the feed does not change."""
    assert feed.recut is not None
    found = [one for one in reports if one is not None and one.reached_ts is not None]
    if len(found) < len(reports):
        return feed  # a worker of an earlier release does not report what it has reached
    at_ts = max(one.reached_ts or 0 for one in found)
    if not stopped_at_one_ts(found):
        return replace(feed, recut=feed.recut.model_copy(update={"at_ts": at_ts}))
    revision = feed.highest_revision + 1
    moved = Move(revision=revision, ts=at_ts, cut=True, grows=feed.recut.grows)
    after = replace(feed, recut=None, revision=revision, moved=moved, begin_ts=at_ts)
    ended = {_counter(feed, one.shard.shard): (one.rows, one.bytes) for one in found}
    return replace(after, ended={**feed.ended, **ended})


def postponed(feed: Feed, reports: Sequence[FeedReport | None]) -> Feed:
    """The feed with a later cut, if a table that has stopped holds back one of its shards. The other tables then
    continue until that table has caught up, because its missing events belong to the partitions of the old shards. The
    feed is returned unchanged if no table has stopped, or while a shard has not reached the ts of the cut."""
    at_ts = None if feed.recut is None else feed.recut.at_ts
    found = [one for one in reports if one is not None and one.reached_ts is not None]
    holds = any(not one.left for report in found for one in report.stopped)
    if at_ts is None or not holds or len(found) < len(reports) or any((one.reached_ts or 0) < at_ts for one in found):
        return feed
    assert feed.recut is not None
    later = max(at_ts, *(one.resolved_ts for one in found)) + from_physical_ms(POSTPONED_MS)
    return replace(feed, recut=feed.recut.model_copy(update={"at_ts": later}))


def stopped_at_one_ts(reports: Sequence[FeedReport]) -> bool:
    """Whether every shard has sent all events up to the same ts, and none above it."""
    return len({one.reached_ts for one in reports} | {one.checkpoint_ts for one in reports}) == 1


def with_ended(feed: Feed, rows: int, size: int) -> tuple[int, int]:
    """The row events and bytes that all shards of the feed, past and present, have sent to its sink. `rows` and `size`
    are those of the present shards. A present shard's progress includes what a past one of the same number has sent."""
    now = {_counter(feed, shard) for shard in range(shard_count(feed))}
    mine = f"{sink_of(feed.sink_uri)}/"
    others = [sent for name, sent in feed.ended.items() if name.startswith(mine) and name not in now]
    return rows + sum(one for one, _ in others), size + sum(one for _, one in others)


def _counter(feed: Feed, shard: int) -> str:
    return f"{sink_of(feed.sink_uri)}/{shard}"


def sink_of(uri: str) -> str:
    """A digest that identifies the sink in which a feed's progress is stored: of its brokers and topic, without options
    and credentials."""
    parts = urlsplit(uri)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return hashlib.sha256(where.encode()).hexdigest()[:32]


def with_skipped(feed: Feed, shard: int, skipped: int) -> Feed:
    """The feed with the number of events that a shard reports as left out, unless a higher number is stored."""
    counter = _counter(feed, shard)
    return (
        feed if skipped <= feed.skipped.get(counter, 0) else replace(feed, skipped={**feed.skipped, counter: skipped})
    )


def combined(shards: Sequence[HeldShard]) -> HeldShard:
    """Combine the shards of a feed into one. The result is the first shard, but with the lowest checkpoint of all
    shards, whether they report or not (invariant 45), and with the combined reports."""
    first = shards[0]
    if len(shards) == 1:
        return first
    reports = [None if one.report is None else FeedReport.model_validate_json(one.report) for one in shards]
    found = [one for one in reports if one is not None]
    report = None if not found else _together(found, whole=len(found) == len(shards)).model_dump_json()
    return replace(first, checkpoint_ts=min(one.checkpoint_ts for one in shards), report=report)


def _together(reports: Sequence[FeedReport], *, whole: bool) -> FeedReport:
    phase = next(phase for phase in _WORST if any(one.phase == phase for one in reports))
    since = [one.since_ms for one in reports if one.since_ms is not None]
    checkpoints = [one.checkpoint_ts for one in reports]
    return reports[0].model_copy(
        update={
            "phase": "running" if phase == "finished" and not whole else phase,
            "checkpoint_ts": None if None in checkpoints else min(one for one in checkpoints if one is not None),
            "resolved_ts": max(one.resolved_ts for one in reports),
            "rows": sum(one.rows for one in reports),
            "bytes": sum(one.bytes for one in reports),
            "retries": sum(one.retries for one in reports),
            "skipped": sum(one.skipped for one in reports),
            "since_ms": min(since, default=None),
            "stopped": stopped(reports),
            "held_by": list({held.model_dump_json(): held for one in reports for held in one.held_by}.values()),
            "error": next((one.error for one in reports if one.error is not None), None),
        }
    )


def stopped(reports: Sequence[FeedReport]) -> list[StoppedTableInfo]:
    """The tables that have stopped in the shards with these reports. A table that has stopped in several shards for one
    reason is one entry, with the lowest checkpoint."""
    found: dict[tuple[str, str, str], StoppedTableInfo] = {}
    for one in (table for report in reports for table in report.stopped):
        key = one.database, one.table, one.reason
        if key not in found or int(one.checkpoint_ts) < int(found[key].checkpoint_ts):
            found[key] = one
    return list(found.values())


def known_ts(feed: Feed, shard: HeldShard) -> int | None:
    """The checkpoint of the shard, if its sink has acknowledged one. None if the sink may have no progress: no worker
    has reported any, or an order to move the checkpoint was not executed yet, which permits a sink without progress."""
    done = 0 if feed.applied is None else feed.applied.revision
    due = feed.moved is not None and feed.moved.revision > done
    begin_ts = feed.start_ts if feed.begin_ts is None else feed.begin_ts
    return None if due or shard.checkpoint_ts <= begin_ts else shard.checkpoint_ts


def state_after(reports: Sequence[FeedReport | None]) -> StoredState | None:
    """The state of a running feed after these reports of its shards; None if it is unchanged. A feed has failed if one
    shard has failed, and has finished if all shards have."""
    if any(one is not None and one.phase == "failed" for one in reports):
        return "failed"
    return "finished" if all(one is not None and one.phase == "finished" for one in reports) else None


def failure_of(reports: Sequence[FeedReport | None]) -> str | None:
    """The error of the first shard that has failed; None if none has."""
    return next((one.error for one in reports if one is not None and one.phase == "failed"), None)


def applied(reports: Sequence[FeedReport | None]) -> Applied | None:
    """The revision that every shard has applied; None if that is the first revision of the feed, or not known."""
    found = [None if one is None else one.applied for one in reports]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    return Applied(
        revision=min(one.revision for one in known),
        from_ts=min(one.from_ts for one in known),
        after_ts=min(one.after_ts for one in known),
    )
