"""Which pending parts a shard must read (docs/adr/0007, decision 2). Pure.

A part that is left alone cannot hold another copy of any change at hand, nothing in it has a commit_ts in the window,
and nothing in it may be proven dead by this tick's rows. Bounds err towards reading.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl

from tistream.format.manifest import PendingPart


@dataclass(frozen=True, slots=True)
class Reach:
    """Which changes are at hand: of each start_ts, in order, its lowest and its highest key."""

    by_start: pl.DataFrame

    @classmethod
    def of(cls, identities: pl.DataFrame) -> Reach:
        """`identities` has columns start_ts and key, and any number of rows for one change."""
        lowest, highest = pl.col("key").min().alias("lowest"), pl.col("key").max().alias("highest")
        return cls(identities.group_by("start_ts").agg(lowest, highest).sort("start_ts"))

    def meets(self, part: PendingPart) -> bool:
        """Whether the part may hold one of the changes."""
        starts = self.by_start["start_ts"]
        first = int(starts.search_sorted(part.start_ts_min, side="left"))
        last = int(starts.search_sorted(part.start_ts_max, side="right"))
        near = self.by_start.slice(first, last - first)
        touching = pl.col("highest") >= part.span.start
        if part.span.end:
            touching &= pl.col("lowest") < part.span.end
        return len(near.filter(touching)) > 0


@dataclass(frozen=True, slots=True)
class ReadRules:
    """high: the window's end. rows_small: parts with fewer rows are always read. all_of_them: a scan connects.
    swept: keys of parts to be looked through for dead locks."""

    high: int
    rows_small: int
    all_of_them: bool = False
    swept: Collection[str] = ()


def read_anyway(parts: Sequence[PendingPart], rules: ReadRules) -> list[bool]:
    """Of each part, whether it is read whatever has come."""
    return [
        rules.all_of_them or part.rows < rules.rows_small or part.commit_ts_min <= rules.high or part.key in rules.swept
        for part in parts
    ]


def read_too(parts: Sequence[PendingPart], anyway: Sequence[bool], identities: pl.DataFrame) -> list[bool]:
    """Of each part, whether it is read because of the changes at hand alone."""
    if all(anyway):
        return [False] * len(parts)
    reach = Reach.of(identities)
    return [not sure and reach.meets(part) for part, sure in zip(parts, anyway, strict=True)]
