"""Which pending parts a shard must read (docs/adr/0007, decision 2). Pure.

A part that is left alone cannot hold another copy of any change at hand, nothing in it has a commit_ts in the window,
and nothing in it may be proven dead by this tick's rows. Bounds err towards reading.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tistream.format.manifest import PendingPart
from tistream.model.span import KeySpan

BYTES_SMALL = 8 << 20


@dataclass(frozen=True, slots=True)
class AtHand:
    """The changes at hand, in order of their keys."""

    keys: pl.Series
    start_ts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, identities: pl.DataFrame) -> AtHand:
        """`identities` has columns start_ts and key, and any number of rows for one change."""
        ordered = identities.sort("key")
        return cls(ordered["key"], ordered["start_ts"].to_numpy())

    def meet(self, parts: Sequence[PendingPart]) -> list[bool]:
        """Of each part, whether it may hold one of the changes."""
        firsts = self._below([part.span.start for part in parts])
        ends = self._below([part.span.end for part in parts])
        out = []
        for part, first, end in zip(parts, firsts, ends, strict=True):
            near = self.start_ts[first : end if part.span.end else None]
            out.append(bool(((near >= part.start_ts_min) & (near <= part.start_ts_max)).any()))
        return out

    def _below(self, keys: list[bytes]) -> list[int]:
        """How many of the changes' keys lie below each; all at once, since a search costs more than its steps."""
        return self.keys.search_sorted(pl.Series(keys, dtype=pl.Binary), side="left").to_list()


@dataclass(frozen=True, slots=True)
class ReadRules:
    """high: the window's end. rows_small: parts with fewer rows, if they are not heavy, are always read. scanned: where
    scans connect, and locks may die by them. swept: keys of parts to be looked through for dead locks."""

    high: int
    rows_small: int
    scanned: Sequence[KeySpan] = ()
    swept: Collection[str] = ()

    def reaches(self, part: PendingPart) -> bool:
        """Whether the part is read whatever has come."""
        return (
            (part.rows < self.rows_small and part.size < BYTES_SMALL)
            or part.commit_ts_min <= self.high
            or part.key in self.swept
            or any(part.span.overlaps(span) for span in self.scanned)
        )


def read_anyway(parts: Sequence[PendingPart], rules: ReadRules) -> list[bool]:
    """Of each part, whether it is read whatever has come."""
    return [rules.reaches(part) for part in parts]


def read_too(parts: Sequence[PendingPart], anyway: Sequence[bool], identities: pl.DataFrame) -> list[bool]:
    """Of each part, whether it is read because of the changes at hand alone."""
    if all(anyway):
        return [False] * len(parts)
    unsure = [part for part, sure in zip(parts, anyway, strict=True) if not sure]
    met = iter(AtHand.of(identities).meet(unsure))
    return [not sure and next(met) for sure in anyway]
