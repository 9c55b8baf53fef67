"""Compares the windows in the progress records of a feed's shards with the messages in its topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tistream.model.ids import TenantKey
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import SHARDS_MAX
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.core.progress import StoredWindow, decode, record_key, window_of
from tistream_changefeed.dispatch.ownership import Ownership
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.fingerprints.windows import ComparedWindows, FoundParts, SentWindow, compared
from tistream_changefeed.verify.message_heads import MessageHead

_BATCH = 4096  # events that are hashed together


@dataclass(frozen=True, slots=True)
class ShardWindows:
    """The windows of a shard whose records were read. `through_ts`: all windows with events at or below it are among
    them. Records of later ones may be hidden although they are committed: readers of committed records see none behind
    the first record of a transaction that is open, which another shard may have begun before."""

    windows: tuple[SentWindow, ...] = ()
    through_ts: int = 0


def shard_windows(records: Iterable[SentMessage], tenant: TenantKey, feed_id: str) -> list[ShardWindows]:
    """The windows of each shard of a feed, from the records of the progress topic, in order. Records of another number
    of shards than the newest one has, and of an earlier feed of this name, are left out. Raises FeedFailed if a record
    is of a newer version."""
    keys = {record_key(tenant, feed_id, shard): shard for shard in range(SHARDS_MAX)}
    found: list[tuple[int, StoredWindow, SentMessage]] = []
    for one in records:
        shard = keys.get(one.key or b"")
        window = None if shard is None else window_of(one.value or b"")
        if shard is not None and window is not None:
            found.append((shard, window, one))
    if not found:
        return []
    newest = max(stored.generation for _, stored, _ in found)
    mine = [each for each in found if each[1].generation == newest]
    shards = mine[-1][1].shards or 1
    of: list[list[tuple[SentWindow, SentMessage]]] = [[] for _ in range(shards)]
    for shard, stored, record in mine:
        if shard < shards and (stored.shards or 1) == shards:
            of[shard].append((stored.window, record))
    return [_shard_windows(each, tenant) for each in of]


def _shard_windows(found: Sequence[tuple[SentWindow, SentMessage]], tenant: TenantKey) -> ShardWindows:
    """Build the ShardWindows of one shard from its windows and their records, in order."""
    if not found:
        return ShardWindows()
    last = found[-1][1]
    through_ts = decode(tenant, last.value or b"", last.topic).checkpoint_ts
    return ShardWindows(tuple(window for window, _ in found), through_ts)


@dataclass(slots=True)
class MessageWindows:
    """Compares the messages of one feed with the windows that its shards have recorded. `windows`: those of each
    shard."""

    windows: list[ShardWindows]
    _found: list[FoundParts] = field(init=False)
    _shards: dict[tuple[str, int], int] = field(default_factory=dict)
    _batch: list[tuple[SentMessage, MessageHead]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._found = [FoundParts() for _ in self.windows]

    def add(self, one: SentMessage, head: MessageHead) -> None:
        """Add an event that was found in a message. `head` is what the message says about it."""
        if self.windows:
            self._batch.append((one, head))
            if len(self._batch) >= _BATCH:
                self._hash()

    def result(self, from_ts: int, to_ts: int, only: Name | None) -> ComparedWindows:
        """Compare the recorded windows that lie in (`from_ts`, `to_ts`] with the events that were added. `only`: the
        one table of which events were added; None: all tables."""
        self._hash()
        done = ComparedWindows()
        for of, found in zip(self.windows, self._found, strict=True):
            done += compared(of.windows, found.events(), from_ts, min(to_ts, of.through_ts), only)
        return done

    def _hash(self) -> None:
        batch, self._batch = self._batch, []
        kind = pa.large_binary()
        stamps = np.array([head.commit_ts for _, head in batch], np.int64)
        keys = pa.array([one.key for one, _ in batch], kind)
        hashes = event_hashes(stamps, (keys, pa.array([one.value for one, _ in batch], kind)))
        places: dict[tuple[int, Name], list[int]] = {}
        for at, (one, head) in enumerate(batch):
            places.setdefault((self._shard(one), (head.database, head.table)), []).append(at)
        for (shard, name), chosen in places.items():
            self._found[shard].add(name, stamps[chosen], hashes[chosen])

    def _shard(self, one: SentMessage) -> int:
        place, shards = (one.topic, one.partition), len(self.windows)
        if place not in self._shards:
            self._shards[place] = next(number for number in range(shards) if Ownership(number, shards).has(*place))
        return self._shards[place]
