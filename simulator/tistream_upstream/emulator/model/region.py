"""Regions of an emulated cluster, and tables that find regions by id and by key. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tistream.schema.tidb.meta_key import decode_bytes, encode_bytes
from tistream.wire.tikv import metapb_pb2 as metapb

_GROUP = 9


@dataclass(frozen=True, slots=True)
class Region:
    """A region. `start` and `end` are memcomparable; an empty end is +infinity. `store` is the store of the leader;
    `peers` has the peer id by store."""

    id: int
    start: bytes
    end: bytes
    version: int
    conf_ver: int
    store: int
    peers: Mapping[int, int]

    @property
    def meta(self) -> metapb.Region:
        """The region in the protobuf form of PD and TiKV."""
        return metapb.Region(
            id=self.id,
            start_key=self.start,
            end_key=self.end,
            region_epoch=metapb.RegionEpoch(conf_ver=self.conf_ver, version=self.version),
            peers=[metapb.Peer(id=peer, store_id=store) for store, peer in self.peers.items()],
        )

    @property
    def leader(self) -> metapb.Peer:
        """The peer that is the leader."""
        return metapb.Peer(id=self.peers[self.store], store_id=self.store)

    def overlaps(self, other: Region) -> bool:
        """Whether any key is in both regions."""
        return (not other.end or self.start < other.end) and (not self.end or other.start < self.end)


def raw_bound(encoded: bytes) -> bytes:
    """The smallest raw key whose encoding is at or above `encoded`; for a valid encoding, the key itself."""
    try:
        raw, _ = decode_bytes(encoded, 0)
    except ValueError:
        out = bytearray()
        at = 0
        while len(encoded) - at >= _GROUP and encoded[at + _GROUP - 1] == 0xFF:
            out += encoded[at : at + _GROUP - 1]
            at += _GROUP
        return bytes(out + encoded[at : at + _GROUP - 1])
    return raw


def encoded_bound(raw: bytes) -> bytes:
    """The memcomparable form of a raw key that bounds a region; empty stays empty."""
    return encode_bytes(raw) if raw else b""


class RegionTable:
    """Regions, found by id and by key."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.by_id = {region.id: region for region in regions}
        self._sort()

    def change(self, regions: Iterable[Region], gone: Iterable[int]) -> None:
        """Add `regions`, which replace those of the same ids, and remove the regions with the ids `gone`."""
        for region_id in gone:
            self.by_id.pop(region_id, None)
        for region in regions:
            self.by_id[region.id] = region
        self._sort()

    def heartbeat(self, region: Region) -> None:
        """Apply the heartbeat of one region's leader, as PD does: a heartbeat with an older epoch is ignored, and one
        with a newer epoch removes the regions that it overlaps."""
        known = self.by_id.get(region.id)
        if known is not None and known.version > region.version:
            return
        overlapped = [one for one in self.by_id.values() if one.id != region.id and one.overlaps(region)]
        if any(one.version > region.version for one in overlapped):
            return
        self.change([region], [one.id for one in overlapped])

    def find(self, encoded: bytes) -> Region | None:
        """The region that contains an encoded key; None if no region does."""
        at = bisect_right(self._starts, encoded) - 1
        if at < 0:
            return None
        region = self._sorted[at]
        return region if not region.end or encoded < region.end else None

    def overlapping(self, start: bytes, end: bytes, limit: int) -> list[Region]:
        """At most `limit` regions (0: no limit) that overlap [start, end), in key order."""
        found = []
        for region in self._sorted[max(0, bisect_right(self._starts, start) - 1) :]:
            if end and region.start >= end:
                break
            if not region.end or region.end > start:
                found.append(region)
            if limit and len(found) >= limit:
                break
        return found

    def _sort(self) -> None:
        self._sorted = sorted(self.by_id.values(), key=lambda region: region.start)
        self._starts = [region.start for region in self._sorted]
