"""Regions, each with a span of keys, a Raft log and a leader, and the ranges of the log that agents push. No I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tistream.model.span import KeySpan


class Entry(NamedTuple):
    """One row of a change file, except for the region, which the entry's Range has."""

    type: int
    op_type: int
    log_index: int
    key: bytes
    value: bytes | None
    old_value: bytes | None
    start_ts: int
    commit_ts: int | None
    txn_source: int | None
    generation: int | None


class Holder(Protocol):
    """A transaction that has locks in a region."""

    @property
    def hold_ts(self) -> int:
        """The ts that the region's resolved_ts may not pass while the locks exist."""


@dataclass(slots=True)
class Range:
    """A log range of a region under one leader, span and version. It grows until it is closed.

    `first` and `last` are log indexes, both included. `floor_ts` is the resolved_ts of the previous range of its keys:
    while this range is not pushed, the files cover its keys up to that ts. `base_ts`: set if the range begins with a
    scan above that ts. `after`: (region id, log index) of the parents that must come before.
    """

    region_id: int
    version: int
    span: KeySpan
    first: int
    last: int
    resolved_ts: int = 0
    floor_ts: int = 0
    base_ts: int | None = None
    after: tuple[tuple[int, int], ...] = ()
    entries: list[Entry] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Region:
    """A region. `open`: the range that its leader's agent collects; None while no agent watches the region. `index`:
    the last log index. `store_id`: the store of its leader. `resolver_ts`: the resolved_ts that the present leader has
    computed. `told_ts` is the resolved_ts of the last closed range of its keys. `holders`: transactions with locks in
    the region, and their number of locks."""

    id: int
    version: int
    span: KeySpan
    index: int
    store_id: int
    resolver_ts: int = 0
    told_ts: int = 0
    open: Range | None = None
    holders: dict[Holder, int] = field(default_factory=dict)

    def append(self) -> int:
        """Append an entry to the log, and return its index."""
        self.index += 1
        if self.open is not None:
            self.open.last = self.index
        return self.index

    def hold(self, holder: Holder, locks: int) -> None:
        """Count `locks` more locks of a transaction in the region; a negative number removes locks."""
        if not locks:
            return
        left = self.holders.get(holder, 0) + locks
        if left:
            self.holders[holder] = left
        else:
            del self.holders[holder]

    def resolve(self, ts: int) -> int:
        """Raise the leader's resolved_ts to `ts`, but not past the oldest lock. Returns it. It never decreases."""
        low = min((holder.hold_ts for holder in self.holders), default=ts)
        self.resolver_ts = max(self.resolver_ts, min(low, ts))
        return self.resolver_ts


class RegionMap:
    """All regions in key order, without gaps."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.all = sorted(regions, key=lambda region: region.span.start)
        self._starts = [region.span.start for region in self.all]
        self.next_id = max(region.id for region in self.all) + 1

    def find(self, key: bytes) -> Region:
        """The region that contains a key."""
        return self.all[bisect_right(self._starts, key) - 1]

    def overlapping(self, span: KeySpan) -> list[Region]:
        """The regions that overlap a span, in key order."""
        first = bisect_right(self._starts, span.start) - 1
        last = bisect_left(self._starts, span.end) if span.end else len(self.all)
        return self.all[first:last]

    def add(self, region: Region) -> None:
        """Add a region after its parent's span was reduced."""
        at = bisect_left(self._starts, region.span.start)
        self.all.insert(at, region)
        self.reindex()

    def remove(self, region: Region) -> None:
        """Remove a region before its span is merged into a neighbour."""
        self.all.remove(region)
        self.reindex()

    def reindex(self) -> None:
        """Restore the order after spans have changed."""
        self.all.sort(key=lambda region: region.span.start)
        self._starts = [region.span.start for region in self.all]
