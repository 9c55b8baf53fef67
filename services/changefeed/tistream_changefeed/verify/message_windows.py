"""Compares the windows in the progress records of a feed's shards with the messages in its topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tistream.model.ids import TenantKey
from tistream.schema.visible import Name
from tistream.wire.bulk.changefeeds import SHARDS_MAX
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.core.progress import StoredWindow, record_key, window_of
from tistream_changefeed.dispatch.ownership import Ownership
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.fingerprints.windows import ComparedWindows, FoundParts, SentWindow, compared
from tistream_changefeed.verify.message_heads import MessageHead

_BATCH = 4096  # events that are hashed together


def shard_windows(records: Iterable[SentMessage], tenant: TenantKey, feed_id: str) -> list[list[SentWindow]]:
    """The windows of each shard of a feed, from the records of the progress topic, in order. Records of another number
    of shards than the newest one has, and of an earlier feed of this name, are left out."""
    keys = {record_key(tenant, feed_id, shard): shard for shard in range(SHARDS_MAX)}
    found: list[tuple[int, StoredWindow]] = []
    for one in records:
        shard = keys.get(one.key or b"")
        window = None if shard is None else window_of(one.value or b"")
        if shard is not None and window is not None:
            found.append((shard, window))
    if not found:
        return []
    newest = max(found, key=lambda one: one[1].generation)[1].generation
    mine = [(shard, one) for shard, one in found if one.generation == newest]
    shards = mine[-1][1].shards or 1
    return [
        [one.window for other, one in mine if other == shard and (one.shards or 1) == shards] for shard in range(shards)
    ]


@dataclass(slots=True)
class MessageWindows:
    """Compares the messages of one feed with `windows`, those of each of its shards."""

    windows: list[list[SentWindow]]
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
        """Compare. The arguments are those of fingerprints.windows.compared."""
        self._hash()
        done = ComparedWindows()
        for windows, found in zip(self.windows, self._found, strict=True):
            done += compared(windows, found.events(), from_ts, to_ts, only)
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
