"""Compares the rows that tables must have with those that are there, in any order and in bounded memory. Pure.

A row is a hash of 64 bits. All hashes are kept while they are few. Of any number, each of BUCKETS buckets has the
difference of the two sides: that of the numbers of rows, and that of the sums of hashes. Equal sides have none.
Otherwise all rows are added a second time, and the hashes of the buckets that differ are kept. They may be too many;
then the sums of each table say which tables differ.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from tistream.arrays import Bools, Int64s
from tistream.restore.fingerprint import Hashes
from tistream.schema.visible import Name
from tistream_changefeed.verify.compared_rows import ComparedRows, RowDifferences

BUCKETS = 1 << 18


class RowBuckets:
    """Compares the hashes of the rows that tables must have with those of the rows that they have. `rows_max`: how many
    hashes are kept at most, on both sides together."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._rows: dict[Name, list[int]] = {}  # how many rows a table must have, and has
        self._table_sums: dict[Name, list[int]] = {}  # the sums of their hashes
        self._counts: Int64s = np.zeros(BUCKETS, np.int64)
        self._sums: Hashes = np.zeros(BUCKETS, np.uint64)
        self._chosen: Bools = np.ones(BUCKETS, bool)  # the buckets whose hashes are kept
        self._kept: dict[Name, ComparedRows] = {}
        self._held = 0
        self._again = False

    def add(self, name: Name, hashes: Hashes, *, there: bool) -> None:
        """Add the hashes of rows that a table has (`there`), or that it must have."""
        mixed, bucket = _mixed(name, hashes)
        if not self._again:
            self._rows.setdefault(name, [0, 0])[there] += len(hashes)
            self._table_sums.setdefault(name, [0, 0])[there] += int(mixed.sum())
            np.add.at(self._counts, bucket, 1 if there else -1)
            (np.add if there else np.subtract).at(self._sums, bucket, mixed)
        chosen = hashes[self._chosen[bucket]]
        kept = self._kept.setdefault(name, ComparedRows())
        (kept.found if there else kept.wanted).append(chosen)
        self._held += len(chosen)
        while self._held > self._rows_max and np.count_nonzero(self._chosen) > self._again:
            self._keep_fewer()

    @property
    def undecided(self) -> bool:
        """Whether all rows must be added a second time, after `begin_again`, to know the differences."""
        return not self._again and not self._chosen.all() and bool(self._differ.any())

    def begin_again(self) -> None:
        """Begin the second round, in which all rows are added again: keep only the hashes in buckets whose sums
        differ."""
        self._again, self._chosen, self._kept, self._held = True, self._differ, {}, 0

    @property
    def partial(self) -> bool:
        """Whether there may be more differences than those of the results."""
        return self._again and int(self._chosen.sum()) < int(self._differ.sum())

    @property
    def differing(self) -> frozenset[Name]:
        """The tables that differ. The results may lack the differences of some of them, if they are `partial`."""
        return frozenset(
            name
            for name, (wanted, found) in self._table_sums.items()
            if (wanted - found) % (1 << 64) or self._rows[name][0] != self._rows[name][1]
        )

    def results(self) -> dict[Name, RowDifferences]:
        """The differences of each table, by name."""
        found = {name: self._kept.get(name, ComparedRows()).result() for name in sorted(self._rows)}
        return {
            name: replace(one, wanted=self._rows[name][0], found=self._rows[name][1]) for name, one in found.items()
        }

    @property
    def _differ(self) -> Bools:
        found: Bools = (self._counts != 0) | (self._sums != 0)
        return found

    def _keep_fewer(self) -> None:
        """Free memory: drop all hashes in the first round, and in the second round those of half of the buckets that
        are kept."""
        places = np.flatnonzero(self._chosen)
        self._chosen[places[-(-len(places) // 2) if self._again else 0 :]] = False
        self._held = 0
        for name, kept in self._kept.items():
            for side in (kept.wanted, kept.found):
                side[:] = [one[self._chosen[_mixed(name, one)[1]]] for one in side]
                self._held += sum(map(len, side))


def _mixed(name: Name, hashes: Hashes) -> tuple[Hashes, Int64s]:
    """Returns (the hashes mixed with the table's name, so that two sums of them are equal by chance only; the bucket of
    each hash)."""
    salt = int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest(), "big")
    mixed = hashes ^ np.uint64(salt)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed, (mixed & np.uint64(BUCKETS - 1)).astype(np.int64)
