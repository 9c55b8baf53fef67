"""The progress of a shard (the part of a feed that one worker writes), which is stored in the sink by the same atomic
act as the data. Pure.

docs/changefeeds.md, "Exactly once", says why.

The record in Kafka has the key `{cluster}/{tenant}/{feed}/{shard}`, and as its value JSON:

    {"version":1,"cursor":"…","resolved_ts":"…","generation":"…","epoch":3,"rows":12,"bytes":345,
     "topics":{"orders":[[messages, crc32], …]},"revision":2,"from_ts":"…","after_ts":"…","skipped":1,
     "stopped":[[database, table, cursor, reason, left, stage, end], …],"ddl":"…","ids":{"orders":"…"}}

`topics` has, for each partition, the number of messages that the shard has ever sent to it, and the CRC-32 of their
values, one after the other. The counts show a topic that has lost messages; the CRC shows what was in them. These
members may be absent:

* `revision`, `from_ts`, `after_ts`: the newest change of the feed that was applied (wire Applied);
* `skipped`: how many events were left out;
* `stopped`: the tables that have stopped; without `stage`, one of their events could not be encoded; with `end`, the
  cursor after which nothing of the table is sent under this revision, in a feed with several shards;
* `ddl`: the cursor after the newest DDL, if the feed has several shards;
* `ids`: the broker's ids of the topics, if it has such ids;
* `shards`: how many shards the feed had when the record was written; records of earlier releases lack it;
* `load`: `[ts, table id, table, raw key in hex]`: the position of the initial load (load.py), while it runs;
* `window`: the fingerprints of the events of the record's transaction (fingerprints/windows.py).

With `stopped` or `ddl`, `version` is 2, with `load` it is 3, and with `end` it is 4, because a program that does not
know these members must not continue. It is 5 if the shard writes under a dotted transactional id
(sinks/kafka/producer_ids.py), which a program that does not know them does not fence.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read import cursor as cursors
from tistream.read.cursor import Place, Position, Scope
from tistream.wire.bulk.changefeeds import Applied, HeldStage, Move
from tistream_changefeed.core.failure import failed, fenced, retry
from tistream_changefeed.core.load import Load
from tistream_changefeed.core.outgoing import Mark, Payload
from tistream_changefeed.core.stopped import StoppedTable
from tistream_changefeed.fingerprints import windows
from tistream_changefeed.fingerprints.windows import SentWindow

PLAIN, WITH_WAITS, WITH_LOAD, WITH_ENDS, DOTTED = VERSIONS = 1, 2, 3, 4, 5


class Fence(NamedTuple):
    """A pair of numbers that decides which worker owns a shard: the worker with the higher pair. Fences compare as
    tuples. `generation` is the time (Unix ms) at which the feed was created, so a feed that was removed and created
    again has a higher fence. `epoch` is that of the shard's assignment."""

    generation: int
    epoch: int


class PartitionTally(NamedTuple):
    """The number of messages that a shard has sent to one partition, and the CRC-32 of all of their values,
    concatenated."""

    messages: int = 0
    crc: int = 0

    def plus(self, value: bytes | memoryview | None, messages: int = 1) -> PartitionTally:
        """Return the tally after one more message with this value. With `messages`, after several messages whose
        concatenated values are `value`."""
        return PartitionTally(self.messages + messages, zlib.crc32(value or b"", self.crc))


@dataclass(frozen=True, slots=True)
class Revision:
    """The revision of a feed's configuration that a worker runs, and the newest move of the feed's checkpoint, which
    came with this or an earlier revision."""

    revision: int = 0
    moved: Move | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a shard. Everything at or before `at` is in the sink.

    `resolved_ts`: the highest resolved message in the sink; 0 before the first. `topics`: the PartitionTally of each
    partition, by topic. `applied`: the newest revision of the feed that has been applied; None for the first revision.
    `skipped`: the number of events that were left out, because a person named them or the configuration of their table
    says so. `stopped`: tables of which events at or before `at` are missing in the sink. `ddl`: the position after the
    newest DDL; None before the first DDL, and in a feed with one shard. `ids`: the broker's ids of the topics that were
    written, by name, as far as they are known. `load`: the progress of the initial load; None if all initial rows are
    in the sink, or the feed begins without any. `shards`: the number of shards of the feed; None in a record of an
    earlier release. `dotted_id`: whether the shard writes into Kafka under a dotted transactional id.
    """

    at: Position
    resolved_ts: int
    fence: Fence
    rows: int = 0
    bytes: int = 0
    topics: Mapping[str, tuple[PartitionTally, ...]] = field(default_factory=dict)
    applied: Applied | None = None
    skipped: int = 0
    stopped: tuple[StoppedTable, ...] = ()
    ddl: Position | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    load: Load | None = None
    shards: int | None = None
    dotted_id: bool = False

    @property
    def revision(self) -> int:
        """The number of the newest revision of the feed that has been applied; 0 for the first."""
        return 0 if self.applied is None else self.applied.revision

    @property
    def checkpoint_ts(self) -> int:
        """The ts at or below which every event is in the sink, except events of tables that were left behind."""
        return min([self.at.low_ts, *(one.at.low_ts for one in self.holding)])

    @property
    def holding(self) -> tuple[StoppedTable, ...]:
        """The stopped tables that hold the checkpoint back: all but those that the user has chosen to leave behind."""
        return tuple(one for one in self.stopped if not one.left)

    @property
    def sent(self) -> Position:
        """The position up to which every event is in the sink, except events of tables that have stopped and are not
        being retried."""
        return min([self.at, *(one.at for one in self.stopped if one.lacks)])

    def caught_up(self, until: Position) -> Progress:
        """Return the progress after the stopped tables that are retried have got their missing events up to `until`,
        but not beyond the shard's own position."""
        return replace(self, stopped=tuple(one.caught_up(min(until, self.at)) for one in self.stopped))

    def held_under(self, fence: Fence) -> Progress:
        """The same progress with another fence."""
        return replace(self, fence=fence)

    def moved(
        self,
        at: Position,
        rows: Payload,
        marks: Sequence[Mark],
        events: int,
        resolved_ts: int | None,
        skipped: int = 0,
    ) -> Progress:
        """Return the progress after more messages were sent, with `at` as its new position. The messages are those of
        `rows`, which contain `events` row events, and then `marks` (DDLs, resolved messages and dead letters).
        `skipped` is the number of dead letters among `marks`. `resolved_ts` None: no resolved message was sent."""
        topics = {name: list(tallies) for name, tallies in self.topics.items()}
        contents = chain(rows.contents(), (one.content for one in marks))
        for topic, partition, messages, values in (one for one in contents if one is not None):
            tallies = topics.setdefault(topic, [])
            tallies.extend(PartitionTally() for _ in range(partition + 1 - len(tallies)))
            tallies[partition] = tallies[partition].plus(values, messages)
        size = int(rows.sizes.sum()) + sum(one.size for one in marks)
        return replace(
            self,
            at=at,
            resolved_ts=self.resolved_ts if resolved_ts is None else resolved_ts,
            rows=self.rows + events,
            bytes=self.bytes + size,
            topics={name: tuple(tallies) for name, tallies in topics.items()},
            skipped=self.skipped + skipped,
        )

    def knowing(self, topics: Mapping[str, int], ids: Mapping[str, str]) -> Progress:
        """Return the progress with these topics recorded, each with its number of partitions and its id, whether
        messages were sent to them or not. So a later worker sends resolved messages to them too, and notices if a topic
        has another number of partitions or another id."""
        known = dict(self.topics)
        for topic, count in topics.items():
            tallies = known.get(topic, ())
            known[topic] = (*tallies, *[PartitionTally()] * (count - len(tallies)))
        return replace(self, topics=known, ids={**self.ids, **ids})


FIRST = Revision()
"""The revision with which a feed was created."""


def record_key(tenant: TenantKey, feed_id: str, shard: int) -> bytes:
    """The key of a shard's record in the progress topic: cluster, tenant, feed and shard number, with slashes between
    them."""
    return f"{tenant.cluster_id}/{tenant.tenant_id}/{feed_id}/{shard}".encode()


def encode(tenant: TenantKey, progress: Progress, window: SentWindow | None = None) -> bytes:
    """Encode the value of a progress record for Kafka (the module has its members). `window`: the range and the
    fingerprints of the events that the same transaction sends; None: the record has no member `window`."""
    members = {
        "version": _version(progress),
        "cursor": cursors.encode(Scope(tenant), progress.at),
        "resolved_ts": str(progress.resolved_ts),
        "generation": str(progress.fence.generation),
        "epoch": progress.fence.epoch,
        "rows": progress.rows,
        "bytes": progress.bytes,
        "topics": progress.topics,
    }
    if progress.applied is not None:
        applied = progress.applied
        members |= {"revision": applied.revision, "from_ts": str(applied.from_ts), "after_ts": str(applied.after_ts)}
    if progress.skipped:
        members["skipped"] = progress.skipped
    if progress.stopped:
        members["stopped"] = [_stopped(tenant, one, ends=_has_ends(progress)) for one in progress.stopped]
    if progress.ddl is not None:
        members["ddl"] = cursors.encode(Scope(tenant), progress.ddl)
    if progress.ids:
        members["ids"] = progress.ids
    if progress.shards is not None:
        members["shards"] = progress.shards
    if progress.load is not None:
        load = progress.load
        members["load"] = [str(load.ts), str(load.table_id), load.table, load.key.hex()]
    if window is not None and window.after_ts < window.until_ts:
        members["window"] = window.members()
    return json.dumps(members, separators=(",", ":")).encode()


def decode(tenant: TenantKey, value: bytes, where: str) -> Progress:
    """Parse the value of a progress record. `where` names the sink in errors. Raises FeedFailed if the value is not a
    record of this tenant, or has a version that this program does not know."""
    try:
        members: dict[str, Any] = json.loads(value)
        if members["version"] not in VERSIONS:
            reason = f"the progress record has version {members['version']}; this program knows {PLAIN} to {DOTTED}"
            raise failed("sink", where, f"{reason}: upgrade the workers")
        return Progress(
            cursors.decode(Scope(tenant), members["cursor"]),
            int(members["resolved_ts"]),
            Fence(int(members["generation"]), int(members["epoch"])),
            int(members["rows"]),
            int(members["bytes"]),
            {name: tuple(PartitionTally(*one) for one in tallies) for name, tallies in members["topics"].items()},
            _applied(members),
            int(members.get("skipped", 0)),
            tuple(_parsed(tenant, *one) for one in members.get("stopped", ())),
            cursors.decode(Scope(tenant), members["ddl"]) if "ddl" in members else None,
            dict(members.get("ids", {})),
            _load(members),
            int(members["shards"]) if "shards" in members else None,
            members["version"] == DOTTED,
        )
    except (ValueError, KeyError, TypeError, InvalidRequest) as error:
        reason = (
            f"the progress record is not one of this feed's ({type(error).__name__}): create the feed under another id"
        )
        raise failed("sink", where, reason) from error


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """The window of sent events (SentWindow) in a progress record. `generation` is the time (Unix ms) at which the
    record's feed was created. `shards` is the number of the feed's shards; None in a record of an earlier release."""

    generation: int
    shards: int | None
    window: SentWindow


def window_of(value: bytes) -> StoredWindow | None:
    """Parse the window of sent events in the value of a progress record. None if the record has none, or the value is
    not a progress record."""
    try:
        members = json.loads(value)
        shards = int(members["shards"]) if "shards" in members else None
        return StoredWindow(int(members["generation"]), shards, windows.parse(members["window"]))
    except (ValueError, KeyError, TypeError):
        return None


def _has_ends(progress: Progress) -> bool:
    """Whether the record has the member `end` of stopped tables. That is so in a feed with several shards, which
    must agree on it, if a stopped table has a `limit`."""
    return (progress.shards or 1) > 1 and any(one.limit is not None for one in progress.stopped)


def _stopped(tenant: TenantKey, one: StoppedTable, *, ends: bool) -> Sequence[object]:
    members = [*one.name, cursors.encode(Scope(tenant), one.at), one.reason, one.left]
    if ends and one.limit is not None:
        return [*members, one.stage, cursors.encode(Scope(tenant), one.limit)]
    return members if one.stage == "encode" else [*members, one.stage]


def _parsed(
    tenant: TenantKey,
    database: str,
    table: str,
    at: str,
    reason: str,
    left: bool,
    stage: HeldStage = "encode",
    end: str | None = None,
) -> StoppedTable:
    limit = None if end is None else cursors.decode(Scope(tenant), end)
    return StoppedTable((database, table), cursors.decode(Scope(tenant), at), reason, left, limit, stage)


def _version(progress: Progress) -> int:
    if progress.dotted_id or _has_ends(progress):
        return DOTTED if progress.dotted_id else WITH_ENDS
    if progress.load is not None:
        return WITH_LOAD
    return WITH_WAITS if progress.stopped or progress.ddl is not None else PLAIN


def _load(members: Mapping[str, Any]) -> Load | None:
    if "load" not in members:
        return None
    ts, table_id, table, key = members["load"]
    return Load(int(ts), int(table_id), table, bytes.fromhex(key))


def _applied(members: Mapping[str, Any]) -> Applied | None:
    if "revision" not in members:
        return None
    return Applied(
        revision=int(members["revision"]), from_ts=int(members["from_ts"]), after_ts=int(members["after_ts"])
    )


def taken_over(found: Progress | None, fence: Fence, start_ts: int, where: str) -> Progress:
    """The progress from which a new worker of the shard continues. `found` is the progress in the sink, read after the
    old worker was fenced there; None if the sink has no progress: then the shard begins after `start_ts`. Raises
    FeedFailed(fenced) if a newer worker has written in the meantime."""
    if found is None or found.fence.generation < fence.generation:  # that feed was removed, and this one begins again
        return Progress(Position(start_ts), 0, fence)
    if found.fence > fence:
        raise fenced(where, f"a holder with epoch {found.fence.epoch} owns the shard; this one has {fence.epoch}")
    return found.held_under(fence)


def revised(progress: Progress, wanted: Revision, ends: Mapping[str, Mapping[int, int]]) -> Progress:
    """Apply the wanted revision to a progress, and return the result. Its position is the same, or the ts to which the
    revision moves the checkpoint. `ends`: the end offset of each partition that exists, by topic and partition number.

    A move affects all tables. It accepts that topics have lost messages or have other partitions; their messages are
    counted anew. Tables that were left behind continue with the others, and their events in between are not sent. The
    highest resolved message stays, because no lower one may follow (invariant 39).

    A table that has stopped is retried under each new revision.

    A cut is a move to a ts at which the feed is divided into shards in another way. Every shard has sent everything at
    or below it, so no lost message is accepted, and no resolved message for that ts is due.

    Raises FeedFailed if the sink has applied a revision of this number that is not the wanted one, so that the meta
    server has given the number twice: then its database was restored from a backup.
    """
    done = progress.revision
    if done == wanted.revision and progress.applied is not None and wanted.moved is not None:
        moved_ts = wanted.moved.ts if wanted.moved.revision == done else progress.applied.after_ts
        if moved_ts != progress.applied.after_ts:
            reason = (
                f"the checkpoint would be moved to {moved_ts} by revision {done} of the feed, and a revision of this "
                f"number has moved it to {progress.applied.after_ts} before the meta database was restored: pause the "
                "feed, and resume it with the checkpoint_ts again"
            )
            raise failed("sink", "revision", reason)
    if done >= wanted.revision:
        return progress
    moved = wanted.moved if wanted.moved is not None and wanted.moved.revision > done else None
    at = progress.at if moved is None else Position(moved.ts)
    from_ts = progress.at.low_ts
    topics, resolved_ts = progress.topics, progress.resolved_ts
    if moved is not None and moved.cut:
        from_ts, resolved_ts = at.low_ts, max(resolved_ts, moved.ts)
        if moved.grows:
            topics = {name: _padded(tallies, len(ends.get(name, {}))) for name, tallies in topics.items()}
    elif moved is not None:
        topics = {name: tallies for name, tallies in topics.items() if not _differs(name, tallies, ends)}
    stopped = tuple(replace(one, limit=None) for one in progress.holding) if moved is None else ()
    ddl = progress.ddl if progress.ddl is not None and progress.ddl <= at else None  # what is sent again waits again
    applied = Applied(revision=wanted.revision, from_ts=from_ts, after_ts=at.low_ts)
    return replace(progress, at=at, resolved_ts=resolved_ts, applied=applied, topics=topics, stopped=stopped, ddl=ddl)


def grown_ts(before: Progress, wanted: Revision) -> int | None:
    """The ts above which rows are spread over another number of partitions; None if `revised`, applied to `before`,
    does not change the number."""
    moved = wanted.moved
    return moved.ts if moved is not None and moved.grows and moved.revision > before.revision else None


def _padded(tallies: tuple[PartitionTally, ...], count: int) -> tuple[PartitionTally, ...]:
    return (*tallies, *[PartitionTally()] * (count - len(tallies)))


def _differs(topic: str, tallies: Sequence[PartitionTally], ends: Mapping[str, Mapping[int, int]]) -> bool:
    return _short(topic, tallies, ends) or len(ends.get(topic, {})) != len(tallies)


def _short(topic: str, tallies: Sequence[PartitionTally], ends: Mapping[str, Mapping[int, int]]) -> bool:
    there = ends.get(topic, {})
    return any(there.get(number, 0) < tally.messages for number, tally in enumerate(tallies))


def kept_ends(
    progress: Progress, ids: Mapping[str, str], ends: Mapping[str, Mapping[int, int]]
) -> dict[str, Mapping[int, int]]:
    """Return `ends`, but without partitions for each topic that was deleted and created again, because the new topic
    has none of the messages that the shard has sent. `ids` and `ends` have the broker's ids and the end offsets of the
    topics that exist now."""
    other = {topic for topic, known in progress.ids.items() if ids.get(topic, known) != known}
    return {topic: {} if topic in other else found for topic, found in ends.items()}


def check_there(found: Progress | None, fence: Fence, known_ts: int | None, where: str) -> None:
    """Check that the sink still has the progress that it once acknowledged. `known_ts` is a checkpoint that it has
    acknowledged; None if the sink may be empty. Raises FeedFailed if it does not, because beginning again would repeat
    everything although no user requested it."""
    if known_ts is None or (found is not None and found.fence.generation >= fence.generation):
        return
    reason = (
        f"the sink has no progress of this feed, of which all events up to {known_ts} were sent: the progress was "
        f"deleted or lost; resume the feed with checkpoint_ts {known_ts}, or with a lower one to have "
        "events again"
    )
    raise failed("sink", where, reason)


def check_revision(found: Collection[Progress], fence: Fence, wanted: Revision, shards: int, where: str) -> None:
    """Check that the revision `wanted`, with `shards` shards, may continue from what is in the sink. `found` is the
    progress of all shards in the sink.

    Raises FeedFailed, because events could be sent twice or be left out, in two cases:

    - A shard of a feed with several shards has written under a newer revision. The failure is retried, because the meta
      server will order that revision, unless it was lost when the meta database was restored from a backup.
    - The newest revision in the sink has another number of shards, and `wanted` does not move all shards to one ts.
    """
    mine = [one for one in found if one.fence.generation == fence.generation]
    newest = max((one.revision for one in mine), default=0)
    if len(mine) > 1 and newest > wanted.revision:
        reason = (
            f"revision {newest} of the feed has written here, and the meta server orders revision {wanted.revision}: "
            "if the meta database was restored from a backup, remove the feed, and create it under another id, with a "
            "start_ts from which its events may come again"
        )
        raise retry("sink", where, reason)
    others = {one.shards for one in mine if one.revision == newest} - {None, shards}
    if others and (wanted.moved is None or wanted.moved.revision <= newest):
        reason = (
            f"{max(one or 0 for one in others)} shards of the feed have written here, and the meta server orders "
            f"{shards}: pause the feed, and resume it with a checkpoint_ts from which its events may come again"
        )
        raise failed("sink", where, reason)


def check_counts(progress: Progress, ends: Mapping[str, Mapping[int, int]]) -> None:
    """Check that each topic has the number of partitions that were written until now. With another number, later
    changes of a row would go to another partition, and could be read before earlier ones. `ends` has the end offsets of
    the partitions to be written. Raises FeedFailed if a number differs. Topics that do not exist or have lost messages
    are left to check_kept."""
    for topic, tallies in progress.topics.items():
        there = len(ends.get(topic, {}))
        if there and tallies and there != len(tallies) and not _short(topic, tallies[:there], ends):
            reason = (
                f"{there} partitions of the topic would be written, and {len(tallies)} were until now, so changes of a "
                f"row would go to another partition than before: update the sink URI to partition-num={len(tallies)}, "
                f"or resume the feed with checkpoint_ts {progress.checkpoint_ts} once consumers have read that far"
            )
            raise failed("sink", topic, reason)


def check_kept(progress: Progress, ends: Mapping[str, Mapping[int, int]]) -> None:
    """Check that no partition has lost messages: each has at least as many offsets as messages were sent to it. `ends`
    is the end offset of each partition, by topic. Raises FeedFailed if a topic was deleted, or the broker has lost
    messages."""
    for topic, tallies in progress.topics.items():
        for number, tally in enumerate(tallies):
            end = ends.get(topic, {}).get(number, 0)
            if end < tally.messages:
                reason = (
                    f"{tally.messages} messages were sent to the partition, and it ends at offset {end}: the topic was "
                    "deleted or has lost messages; resume the feed with the checkpoint_ts from which they are wanted "
                    "again"
                )
                raise failed("sink", f"{topic}-{number}", reason)


def within(start: Position, end_ts: int | None) -> bool:
    """Whether a shard at position `start` has anything left to send. `end_ts` is the feed's end, inclusive; None if it
    has no end."""
    return end_ts is None or start < Position(end_ts, Place.DONE)
