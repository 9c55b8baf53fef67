"""PD's view of the emulated cluster's regions, which is older than that of the stores. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import count

from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_upstream.emulator.model.region import Region, RegionTable
from tistream_upstream.emulator.model.timeline import RegionsChange

PAGE_MAX = 1_024


class PdRegions:
    """The regions as PD sees them. Heartbeats arrive with a delay, and those of one split or merge arrive one after the
    other. So clients see gaps, old leaders and regions without a leader."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self._table = RegionTable(regions)
        self._leaderless: set[int] = set()
        self._numbers = count()
        self._due: list[tuple[int, int, Region, bool]] = []

    def learn(self, change: RegionsChange) -> None:
        """Schedule the heartbeats for a change of regions. If the change is a silent change of leader, PD sees no
        leader for half of the delay."""
        for place, region in enumerate(change.regions, start=1):
            at = change.at_us + change.pd_delay_us * place // len(change.regions)
            if change.silent and change.pd_delay_us:
                heapq.heappush(self._due, (at - change.pd_delay_us // 2, next(self._numbers), region, False))
            heapq.heappush(self._due, (at, next(self._numbers), region, True))

    def advance(self, now_us: int) -> None:
        """Apply the heartbeats that have arrived by `now_us`."""
        while self._due and self._due[0][0] <= now_us:
            _, _, region, led = heapq.heappop(self._due)
            self._table.heartbeat(region)
            self._leaderless -= {region.id}
            if not led:
                self._leaderless |= {region.id}

    def scan(self, start: bytes, end: bytes, limit: int) -> list[pdpb.Region]:
        """The regions that overlap the encoded keys [start, end), in order; at most `limit` (0: no limit), and never
        more than PAGE_MAX."""
        limit = min(limit, PAGE_MAX) if limit > 0 else PAGE_MAX
        return [self._shown(region) for region in self._table.overlapping(start, end, limit)]

    def scan_ranges(self, ranges: Sequence[tuple[bytes, bytes]], limit: int) -> list[pdpb.Region]:
        """The regions of several ranges, each region once; at most `limit`, or PAGE_MAX if `limit` is 0."""
        out: dict[int, pdpb.Region] = {}
        for start, end in ranges:
            for found in self.scan(start, end, limit):
                out.setdefault(found.region.id, found)
        return list(out.values())[: limit if limit > 0 else PAGE_MAX]

    def find(self, encoded: bytes) -> pdpb.Region | None:
        """The region of an encoded key; None if PD sees no region there."""
        region = self._table.find(encoded)
        return None if region is None else self._shown(region)

    def by_id(self, region_id: int) -> pdpb.Region | None:
        """The region with this id; None if PD does not know it."""
        region = self._table.by_id.get(region_id)
        return None if region is None else self._shown(region)

    def _shown(self, region: Region) -> pdpb.Region:
        leader = None if region.id in self._leaderless else region.leader
        return pdpb.Region(region=region.meta, leader=leader)
