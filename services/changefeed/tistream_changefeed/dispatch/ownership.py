"""Assigns partitions to the shards of a feed, which write it in parallel. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tistream.arrays import Bools, Int64s
from tistream_changefeed.core.outgoing import SentMessage


@dataclass(frozen=True, slots=True)
class Ownership:
    """The partitions that shard `shard` of `shards` writes. Each partition of each topic always has the same shard.
    A hash of the topic's name chooses the shard of its first partition, so that many topics of one partition are
    spread over the shards."""

    shard: int = 0
    shards: int = 1

    def chosen(self, topic: str, partitions: Int64s) -> Bools:
        """For each of these partitions of a topic, whether this shard writes it."""
        found: Bools = (zlib.crc32(topic.encode()) + partitions) % self.shards == self.shard
        return found

    def has(self, topic: str, partition: int) -> bool:
        """Whether this shard writes this partition."""
        return bool(self.chosen(topic, np.array([partition], np.int64))[0])

    def own(self, messages: Iterable[SentMessage]) -> tuple[SentMessage, ...]:
        """Those of `messages` that this shard writes."""
        return tuple(one for one in messages if self.shards == 1 or self.has(one.topic, one.partition))


WHOLE = Ownership()
