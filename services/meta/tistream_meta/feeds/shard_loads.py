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

_Key = tuple[TenantKey, str]


@dataclass(frozen=True, slots=True)
class LoadRules:
    """The rules for the number of shards. A load is measured over `window_ms`. A feed gets twice as many shards if each
    sends more than `split_bytes_s` bytes a second on average, and half as many if each has sent less than
    `merge_bytes_s` in `merge_windows` windows in a row: a feed stops for a moment when it is cut."""

    window_ms: int = 60_000
    split_bytes_s: int = 16 << 20
    merge_bytes_s: int = 4 << 20
    merge_windows: int = 10


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
        """The bytes per second that a shard of the feed has sent on average since the window began. `now_ms` must be
        later than that."""
        sent = sum(total - self.first[shard] for shard, total in self.last.items())
        return sent * 1000 / (now_ms - self.begun_ms) / self.shards


@dataclass(slots=True)
class ShardLoads:
    """Measures how many bytes the shards of each feed with `shards-max` send. Times are monotonic milliseconds."""

    rules: LoadRules = field(default_factory=LoadRules)
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
            shards = _wanted(load, most, now_ms, self.rules)
            if shards is not None:
                found.append((feed, shards))
        self._loads = {
            key: one for key, one in self._loads.items() if now_ms - one.begun_ms <= 2 * self.rules.window_ms
        }
        return found

    def _load(self, feed: Feed, now_ms: int) -> _Load:
        key, shards = (feed.tenant, feed.feed_id), feed_shards.shard_count(feed)
        load = self._loads.get(key)
        if load is None or load.shards != shards:
            load = self._loads[key] = _Load(shards, now_ms)
        return load


def _wanted(load: _Load, most: int, now_ms: int, rules: LoadRules) -> int | None:
    """The number of shards that the feed must get at the end of a window, at most `most`; None if the window has not
    ended, or if the number stays. If the window has ended, also begins the next one in `load`."""
    if now_ms - load.begun_ms < rules.window_ms:
        return None
    rate, shards = load.rate(now_ms), load.shards
    load.begun_ms, load.first = now_ms, dict(load.last)
    load.low = load.low + 1 if rate < rules.merge_bytes_s else 0
    if rate > rules.split_bytes_s and shards < most:
        return min(2 * shards, most)
    return shards // 2 if load.low >= rules.merge_windows and shards > 1 else None
