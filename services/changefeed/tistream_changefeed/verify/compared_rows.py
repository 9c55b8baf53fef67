"""Compares the rows that a table must have with those that are there, in any order, by 64-bit hashes of all
values. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tistream.restore.fingerprint import Hashes
from tistream.schema.visible import Name
from tistream.wire.bulk.feed_verify import VerifiedTable


@dataclass(slots=True)
class ComparedRows:
    """The hashes of the rows that one table must have (`wanted`), and of those that it has (`found`)."""

    wanted: list[Hashes] = field(default_factory=list)
    found: list[Hashes] = field(default_factory=list)

    def result(self) -> RowDifferences:
        """Find out how many rows of each hash are missing, unexpected or repeated."""
        wanted, found = _joined(self.wanted), _joined(self.found)
        values = np.unique(np.concatenate([wanted, found]))
        more = _counts(values, found) - _counts(values, wanted)
        known = np.isin(values, wanted)
        return RowDifferences(
            len(wanted), len(found), _over(values, -more), _over(values, more * ~known), _over(values, more * known)
        )


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """The numbers of rows that a table must have (`wanted`) and has (`found`), and how many rows of each hash are
    `missing`, are there and must not be (`unexpected`), or are there too often (`repeated`)."""

    wanted: int
    found: int
    missing: dict[int, int]
    unexpected: dict[int, int]
    repeated: dict[int, int]

    @property
    def equal(self) -> bool:
        """Whether the table has exactly the rows that it must have."""
        return not (self.missing or self.unexpected or self.repeated)


def indexes_of(hashes: Hashes, left: dict[int, int]) -> Iterator[int]:
    """Yield the indexes of the hashes that are keys of `left`, each hash at most as often as its count in `left`. The
    counts are decremented in place."""
    for at in np.flatnonzero(np.isin(hashes, np.array(list(left), np.uint64))).tolist() if left else ():
        one = int(hashes[at])
        if left[one]:
            left[one] -= 1
            yield at


def counted(name: Name, one: RowDifferences) -> VerifiedTable:
    """Convert the differences of the table `name` to the form of the answer."""
    return VerifiedTable(
        database=name[0],
        table=name[1],
        events=one.wanted,
        messages=one.found,
        missing=sum(one.missing.values()),
        unexpected=sum(one.unexpected.values()),
        repeated=sum(one.repeated.values()),
    )


def _joined(parts: list[Hashes]) -> Hashes:
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _counts(values: Hashes, among: Hashes) -> npt.NDArray[np.int64]:
    return np.bincount(np.searchsorted(values, among), minlength=len(values)).astype(np.int64)


def _over(values: Hashes, more: Any) -> dict[int, int]:
    at = np.flatnonzero(more > 0)
    return dict(zip(values[at].tolist(), more[at].tolist(), strict=True))
