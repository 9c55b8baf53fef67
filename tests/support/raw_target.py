"""A second TiKV cluster, into which changes of RawKV are replayed: its regions may move and split while they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from tistream.clock import SystemClock
from tistream_upstream.emulator.model.quiet import quiet_upstream
from tistream_upstream.emulator.model.region import Region, encoded_bound
from tistream_upstream.emulator.model.timeline import PUT, Item, RegionsChange
from tistream_upstream.emulator.model.upstream import Upstream
from tistream_upstream.emulator.servers import EmulatedCluster

CLUSTER_ID = 8_000_000_000_000_000_001
STORES = 3
CUTS = (b"r\0\0\0k", b"r\0\0\x05", b"r\0\0\x05user:")
STEP_US = 100_000


def moves(regions: Sequence[Region], count: int) -> Sequence[Item]:
    """Every STEP_US, `count` times, the leader of one region moves, of which each third move its store says nothing;
    sometimes a region is split. PD learns it later."""
    return list(_moves(list(regions), count))


def _moves(regions: list[Region], count: int) -> Iterator[Item]:
    for number in range(1, count + 1):
        at = number % len(regions)
        region = regions[at]
        if number % 50 == 25:
            middle = encoded_bound(b"r\0\0\0%03d" % number)
            if region.start < middle and (not region.end or middle < region.end):
                right = replace(region, id=1_000 + number, start=middle, version=region.version + 1)
                left = replace(region, end=middle, version=region.version + 1)
                regions[at : at + 1] = [left, right]
                yield RegionsChange(number * STEP_US, [left, right], (), 50_000)
                continue
        regions[at] = replace(region, store=1 + region.store % STORES)
        yield RegionsChange(number * STEP_US, [regions[at]], (), 50_000, silent=number % 3 == 0)


class RawTarget:
    """The cluster as servers. Some writes are refused because a store is busy. Its regions move for `moving_s`."""

    def __init__(self, busy_rate: float = 0.1, moving_s: int = 60) -> None:
        clock = SystemClock()
        happenings = partial(moves, count=moving_s * 1_000_000 // STEP_US)
        self.upstream = quiet_upstream(CLUSTER_ID, clock.now_ms(), STORES, CUTS, busy_rate, happenings=happenings)
        self._served = EmulatedCluster(self.upstream, clock)

    def __enter__(self) -> RawTarget:
        self._served.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._served.stop()

    @property
    def address(self) -> str:
        """PD's host and port."""
        return self._served.pd_address

    def live(self, now_s: int) -> dict[bytes, bytes]:
        """The keys that have a value at `now_s`, seconds of Unix time."""
        with self._served.shared.changed:
            return live_pairs(self.upstream, now_s)


def live_pairs(upstream: Upstream, now_s: int) -> dict[bytes, bytes]:
    """The raw keys of a cluster that have a value at `now_s`."""
    found = upstream.mvcc.read(b"r", b"s", 1 << 62)
    return {key: row.value for key, row in found if row.op == PUT and (not row.expire_ts or row.expire_ts > now_s)}
