"""Decides when a changefeed with `shards-max` gets more or fewer shards, by the bytes that its shards send. Pure.

The load of each feed is in the memory of the owner; a new owner measures again before it decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import FeedReport
from tistream_meta.decide.feed_policy import Feed
from tistream_meta.feeds import feed_shards

WINDOW_MS = 60_000  # over which a load is measured
SPLIT_BYTES_S = 16 << 20  # a shard that sends more, on average of the feed's shards, is too busy
MERGE_BYTES_S = 4 << 20  # with less, half of the shards would do
MERGE_WINDOWS = 10  # in a row, because a feed stops for a moment when it is cut

_Key = tuple[TenantKey, str]


@dataclass(slots=True)
class _Load:
    """The bytes that each shard of a feed had sent when the window began, and has sent now, by shard. `low` is the
    number of windows in a row with little load."""

    shards: int
    begun_ms: int
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    low: int = 0

    def rate(self, now_ms: int) -> float:
        """Bytes a second of each shard in this window, on average."""
        sent = sum(total - self.first[shard] for shard, total in self.last.items())
        return sent * 1000 / (now_ms - self.begun_ms) / self.shards


@dataclass(slots=True)
class ShardLoads:
    """Measures how many bytes the shards of each feed with `shards-max` send. Times are monotonic milliseconds."""

    _loads: dict[_Key, _Load] = field(default_factory=dict)

    def record(self, feeds: Iterable[Feed], reports: Sequence[FeedReport], now_ms: int) -> list[tuple[Feed, int]]:
        """Record what a worker's shards have sent, from its reports. `feeds` are those of which it holds shards.
        Returns the feeds that must get another number of shards, each with the number."""
        found = []
        for feed in {(one.tenant, one.feed_id): one for one in feeds}.values():
            most = feed_shards.shards_max(json.loads(feed.config))
            if most is None or feed.recut is not None:
                continue
            load = self._load(feed, now_ms)
            for report in reports:
                of = report.shard
                named = (TenantKey(of.cluster_id, of.tenant_id), of.changefeed_id) == (feed.tenant, feed.feed_id)
                if named and of.generation == feed.generation:
                    load.first.setdefault(of.shard, report.bytes)
                    load.last[of.shard] = report.bytes
            shards = _wanted(load, most, now_ms)
            if shards is not None:
                found.append((feed, shards))
        self._loads = {key: one for key, one in self._loads.items() if now_ms - one.begun_ms <= 2 * WINDOW_MS}
        return found

    def _load(self, feed: Feed, now_ms: int) -> _Load:
        key, shards = (feed.tenant, feed.feed_id), feed_shards.shard_count(feed)
        load = self._loads.get(key)
        if load is None or load.shards != shards:
            load = self._loads[key] = _Load(shards, now_ms)
        return load


def _wanted(load: _Load, most: int, now_ms: int) -> int | None:
    """The number of shards after a window; None if the window has not ended, or the number is right."""
    if now_ms - load.begun_ms < WINDOW_MS:
        return None
    rate, shards = load.rate(now_ms), load.shards
    load.begun_ms, load.first = now_ms, dict(load.last)
    load.low = load.low + 1 if rate < MERGE_BYTES_S else 0
    if rate > SPLIT_BYTES_S and shards < most:
        return min(2 * shards, most)
    return shards // 2 if load.low >= MERGE_WINDOWS and shards > 1 else None
