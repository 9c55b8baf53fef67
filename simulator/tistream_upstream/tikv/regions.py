"""Regions: spans of keys, each with a Raft log and a leader; stretches of logs as agents watch them. Pure.

A log entry may change many keys: all rows of one command of one region have one log index.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tistream.model.span import KeySpan


class Entry(NamedTuple):
    """One row of a change file; its region is its range's."""

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
    """A transaction with locks in a region."""

    @property
    def hold_ts(self) -> int:
        """The region's resolved_ts may not pass this while the locks are there."""


@dataclass(slots=True)
class Range:
    """A stretch of one region's log under one leader, one span and one version. Grows until it is closed.

    `floor_ts`: what the stretch before it was resolved to. As long as this one is not pushed, its keys are known to
    be covered that far.
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
    """A region. `open` is what its leader's agent watches; None while nobody does.

    `resolver_ts`: what the resolver of the present leader and version has reached. `told_ts`: of the last stretch of
    its keys' log that was closed, the resolved_ts. `holders`: transactions with locks
    here, and how many.
    """

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
        """One more entry in its log; the index."""
        self.index += 1
        if self.open is not None:
            self.open.last = self.index
        return self.index

    def hold(self, holder: Holder, locks: int) -> None:
        """Locks came (or, with a negative number, went)."""
        if not locks:
            return
        left = self.holders.get(holder, 0) + locks
        if left:
            self.holders[holder] = left
        else:
            del self.holders[holder]

    def resolve(self, ts: int) -> int:
        """The resolved_ts at `ts`: the oldest lock or now, but never lower than before."""
        low = min((holder.hold_ts for holder in self.holders), default=ts)
        self.resolver_ts = max(self.resolver_ts, min(low, ts))
        return self.resolver_ts


class RegionMap:
    """All regions, in key order, without holes."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.all = sorted(regions, key=lambda region: region.span.start)
        self._starts = [region.span.start for region in self.all]
        self.next_id = max(region.id for region in self.all) + 1

    def find(self, key: bytes) -> Region:
        """The region of a key."""
        return self.all[bisect_right(self._starts, key) - 1]

    def overlapping(self, span: KeySpan) -> list[Region]:
        """Regions that have keys in common with a span."""
        first = bisect_right(self._starts, span.start) - 1
        last = bisect_left(self._starts, span.end) if span.end else len(self.all)
        return self.all[first:last]

    def add(self, region: Region) -> None:
        """A new region, whose span another one has given up."""
        at = bisect_left(self._starts, region.span.start)
        self.all.insert(at, region)
        self.reindex()

    def remove(self, region: Region) -> None:
        """A region whose span another one has taken."""
        self.all.remove(region)
        self.reindex()

    def reindex(self) -> None:
        """Spans have changed."""
        self.all.sort(key=lambda region: region.span.start)
        self._starts = [region.span.start for region in self.all]
