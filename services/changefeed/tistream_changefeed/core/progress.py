"""The progress of a shard, as it is stored in the sink by the same atomic act as the data (design-changefeeds.md 9.3).
Pure.

The record in Kafka has the key `{cluster}/{tenant}/{feed}/{shard}`, and as its value JSON:

    {"version":1,"cursor":"…","resolved_ts":"…","generation":"…","epoch":3,"rows":12,"bytes":345,
     "topics":{"orders":[[messages, crc32], …]}}

`topics` has the number of messages that the shard has ever sent to each partition, and the CRC-32 of their values, one
after the other. The counts show a topic that has lost messages; the CRC shows what was in them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.read import cursor as cursors
from tistream.read.cursor import Place, Position, Scope
from tistream_changefeed.core.failure import failed, fenced
from tistream_changefeed.core.outgoing import Sent

VERSION = 1


class Fence(NamedTuple):
    """Fences compare as tuples. `generation`: milliseconds at which the feed was created, so that a feed that was
    removed and created anew is above the old one. `epoch`: of the shard's assignment."""

    generation: int
    epoch: int


class Tally(NamedTuple):
    """Messages that a shard has sent to one partition, and the CRC-32 of their values, chained."""

    messages: int = 0
    crc: int = 0

    def plus(self, value: bytes | None) -> Tally:
        """With one more message."""
        return Tally(self.messages + 1, zlib.crc32(value or b"", self.crc))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a shard is. Everything at or before `at` is in the sink. `resolved_ts`: the highest resolved message in
    it; 0: none. `topics`: the Tally of each partition, by topic."""

    at: Position
    resolved_ts: int
    fence: Fence
    rows: int = 0
    bytes: int = 0
    topics: Mapping[str, tuple[Tally, ...]] = field(default_factory=dict)

    @property
    def checkpoint_ts(self) -> int:
        """Every event at or below it is in the sink."""
        return self.at.low_ts

    def held_under(self, fence: Fence) -> Progress:
        """This progress under another fence."""
        return replace(self, fence=fence)

    def moved(self, at: Position, sent: Iterable[Sent], rows: int, resolved_ts: int | None) -> Progress:
        """The progress after these messages, in the order in which they are sent."""
        topics = {name: list(tallies) for name, tallies in self.topics.items()}
        size = 0
        for one in sent:
            tallies = topics.setdefault(one.topic, [])
            tallies.extend(Tally() for _ in range(one.partition + 1 - len(tallies)))
            tallies[one.partition] = tallies[one.partition].plus(one.value)
            size += len(one.key or b"") + len(one.value or b"")
        return Progress(
            at,
            self.resolved_ts if resolved_ts is None else resolved_ts,
            self.fence,
            self.rows + rows,
            self.bytes + size,
            {name: tuple(tallies) for name, tallies in topics.items()},
        )


def record_key(tenant: TenantKey, feed_id: str, shard: int) -> bytes:
    """The key of a shard's record in the progress topic."""
    return f"{tenant.cluster_id}/{tenant.tenant_id}/{feed_id}/{shard}".encode()


def encode(tenant: TenantKey, progress: Progress) -> bytes:
    """The value of the record."""
    members = {
        "version": VERSION,
        "cursor": cursors.encode(Scope(tenant), progress.at),
        "resolved_ts": str(progress.resolved_ts),
        "generation": str(progress.fence.generation),
        "epoch": progress.fence.epoch,
        "rows": progress.rows,
        "bytes": progress.bytes,
        "topics": progress.topics,
    }
    return json.dumps(members, separators=(",", ":")).encode()


def decode(tenant: TenantKey, value: bytes, where: str) -> Progress:
    """Parse a record. Raises FeedFailed if this program did not write it."""
    try:
        members: dict[str, Any] = json.loads(value)
        if members["version"] != VERSION:
            reason = f"the progress record has version {members['version']}; this program knows {VERSION}"
            raise failed("sink", where, f"{reason}: upgrade the workers")
        return Progress(
            cursors.decode(Scope(tenant), members["cursor"]),
            int(members["resolved_ts"]),
            Fence(int(members["generation"]), int(members["epoch"])),
            int(members["rows"]),
            int(members["bytes"]),
            {name: tuple(Tally(*one) for one in tallies) for name, tallies in members["topics"].items()},
        )
    except (ValueError, KeyError, TypeError, InvalidRequest) as error:
        reason = (
            f"the progress record is not one of this feed's ({type(error).__name__}): create the feed under another id"
        )
        raise failed("sink", where, reason) from error


def taken_over(found: Progress | None, fence: Fence, start_ts: int, where: str) -> Progress:
    """The progress that a new holder goes on from. `found`: what the sink has, read after the old holder was fenced
    there. Raises FeedFailed(fenced) if a newer holder has written meanwhile."""
    if found is None or found.fence.generation < fence.generation:  # that feed was removed, and this one begins anew
        return Progress(Position(start_ts), 0, fence)
    if found.fence > fence:
        raise fenced(where, f"a holder with epoch {found.fence.epoch} owns the shard; this one has {fence.epoch}")
    return found.held_under(fence)


def check_kept(progress: Progress, ends: Mapping[str, Mapping[int, int]]) -> None:
    """Check that the sink still has as many offsets as messages were sent. `ends`: the end offset of each partition, by
    topic. Raises FeedFailed: the topic was deleted, or the broker has lost messages."""
    for topic, tallies in progress.topics.items():
        for number, tally in enumerate(tallies):
            end = ends.get(topic, {}).get(number, 0)
            if end < tally.messages:
                reason = (
                    f"{tally.messages} messages were sent to the partition, and it ends at offset {end}: the topic was "
                    "deleted or has lost messages; remove the feed, and create it again with the start_ts from which "
                    "they are wanted"
                )
                raise failed("sink", f"{topic}-{number}", reason)


def within(start: Position, end_ts: int | None) -> bool:
    """Whether anything up to `end_ts` is left to send."""
    return end_ts is None or start < Position(end_ts, Place.DONE)
