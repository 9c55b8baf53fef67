"""Decides which pending parts a shard must read (docs/adr/0007, decision 2). Pure.

A pending part is a file of rows that are not flushed. It is skipped if three conditions hold: it cannot hold a copy of
a change of this tick, none of its commit_ts lies in the window to flush, and this tick's watermark rows cannot prove
one of its locks dead. If a condition is not known, the part is read.
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
class TickIdentities:
    """The identities (start_ts, key) of the changes of this tick, sorted by key. They decide which pending parts may
    hold the same changes."""

    keys: pl.Series
    start_ts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, identities: pl.DataFrame) -> TickIdentities:
        """Sort the identities in a table with the columns start_ts and key, in which a change may have several rows."""
        ordered = identities.sort("key")
        return cls(ordered["key"], ordered["start_ts"].to_numpy())

    def meet(self, parts: Sequence[PendingPart]) -> list[bool]:
        """For each part, whether it may hold one of the changes."""
        firsts = self._below([part.span.start for part in parts])
        ends = self._below([part.span.end for part in parts])
        out = []
        for part, first, end in zip(parts, firsts, ends, strict=True):
            near = self.start_ts[first : end if part.span.end else None]
            out.append(bool(((near >= part.start_ts_min) & (near <= part.start_ts_max)).any()))
        return out

    def _below(self, keys: list[bytes]) -> list[int]:
        """Count for each key the changes with a lower key. One call handles all keys, because its fixed cost is
        high."""
        return self.keys.search_sorted(pl.Series(keys, dtype=pl.Binary), side="left").to_list()


@dataclass(frozen=True, slots=True)
class ReadRules:
    """The conditions under which a pending part must be read, whatever this tick's changes are. high: the upper end of
    the window to flush. rows_small: parts with fewer rows (and less than BYTES_SMALL) are always read. scanned: spans
    for which a scan arrived, which may prove locks of pipelined transactions dead. swept: keys of the parts that are
    examined for dead locks in this tick."""

    high: int
    rows_small: int
    scanned: Sequence[KeySpan] = ()
    swept: Collection[str] = ()

    def must_read(self, part: PendingPart) -> bool:
        """Whether the part must be read, whatever the changes of this tick are."""
        return (
            (part.rows < self.rows_small and part.size < BYTES_SMALL)
            or part.commit_ts_min <= self.high
            or part.key in self.swept
            or any(part.span.overlaps(span) for span in self.scanned)
        )


def read_anyway(parts: Sequence[PendingPart], rules: ReadRules) -> list[bool]:
    """For each part, whether it must be read, whatever the changes of this tick are."""
    return [rules.must_read(part) for part in parts]


def read_for_repeats(parts: Sequence[PendingPart], anyway: Sequence[bool], identities: pl.DataFrame) -> list[bool]:
    """Select the parts that must be read only because they may hold one of the changes of this tick (`identities`).
    `anyway`: for each part, whether it is read for another reason. Returns True or False for each part."""
    if all(anyway):
        return [False] * len(parts)
    unsure = [part for part, sure in zip(parts, anyway, strict=True) if not sure]
    met = iter(TickIdentities.of(identities).meet(unsure))
    return [not sure and next(met) for sure in anyway]
