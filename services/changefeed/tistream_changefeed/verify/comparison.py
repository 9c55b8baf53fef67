"""Compares the events that a feed had to send with the messages that its topics have. Pure. Both are counted by a
digest of topic, partition, key and value, so the memory of a comparison does not depend on the size of rows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tistream.wire.bulk.feed_verify import DIFFERENCES_MAX, Difference, VerifiedTable
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.verify.message_heads import MessageHead

Name = tuple[str, str]


@dataclass(slots=True)
class _Counted:
    """How often an event was expected and found; equal events are counted together. `offset`: of the newest message."""

    head: MessageHead
    topic: str
    partition: int
    wanted: int = 0
    found: int = 0
    offset: int | None = None


@dataclass(slots=True)
class Comparison:
    """Counts how often each event was expected, and how often it was found in a message. Both may be added in any
    order."""

    _seen: dict[bytes, _Counted] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._seen)

    def wanted(self, one: SentMessage, head: MessageHead) -> None:
        """Add an event that the feed had to send."""
        self._of(one, head).wanted += 1

    def found(self, one: SentMessage, head: MessageHead, offset: int) -> None:
        """Add an event that was found in a message. `head` is what the message says about it; `offset` is that of the
        message in its partition."""
        counted = self._of(one, head)
        counted.found += 1
        counted.offset = offset

    def take_missing(self, one: SentMessage) -> bool:
        """Return whether no message was found for this event. If so, record one as found: of several equal events, only
        as many are missing as have no message."""
        counted = self._seen.get(_digest(one))
        if counted is None or counted.found >= counted.wanted:
            return False
        counted.found += 1
        return True

    def tables(self) -> list[VerifiedTable]:
        """The counts of each table, sorted by name."""
        counts: dict[Name, Counter[str]] = {}
        for one in self._seen.values():
            of = counts.setdefault((one.head.database, one.head.table), Counter())
            of["events"] += one.wanted
            of["messages"] += one.found
            of["missing"] += max(0, one.wanted - one.found)
            of["unexpected"] += 0 if one.wanted else one.found
            of["repeated"] += max(0, one.found - one.wanted) if one.wanted else 0
        return [
            VerifiedTable(
                database=database,
                table=table,
                events=of["events"],
                messages=of["messages"],
                missing=of["missing"],
                unexpected=of["unexpected"],
                repeated=of["repeated"],
            )
            for (database, table), of in sorted(counts.items())
        ]

    def differences(self) -> list[Difference]:
        """The first DIFFERENCES_MAX differences, by commit_ts."""
        found = sorted(self._different(), key=lambda one: (int(one.commit_ts), one.topic, one.partition))
        return found[:DIFFERENCES_MAX]

    def _different(self) -> Iterator[Difference]:
        for one in self._seen.values():
            if one.wanted == one.found:
                continue
            yield Difference(
                what="missing" if one.found < one.wanted else "repeated" if one.wanted else "unexpected",
                database=one.head.database,
                table=one.head.table,
                commit_ts=str(one.head.commit_ts),
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                key=dict(one.head.key),
            )

    def _of(self, one: SentMessage, head: MessageHead) -> _Counted:
        digest = _digest(one)
        found = self._seen.get(digest)
        if found is None:
            found = self._seen[digest] = _Counted(head, one.topic, one.partition)
        return found


def _digest(one: SentMessage) -> bytes:
    """A digest of topic, partition, key and value. A null key or value is not the same as an empty one."""
    found = hashlib.blake2b(f"{one.topic}/{one.partition}".encode(), digest_size=16)
    for part in (one.key, one.value):
        found.update(b"-" if part is None else b"+%d:" % len(part))
        found.update(part or b"")
    return found.digest()
