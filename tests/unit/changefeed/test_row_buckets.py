"""Rows on two sides are compared in bounded memory as with all of them in memory, and tables followed through DDLs."""

from __future__ import annotations

import numpy as np
import pytest

from support import feed_tables
from tistream.restore.fingerprint import Hashes
from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.verify.compared_rows import ComparedRows, RowDifferences
from tistream_changefeed.verify.iceberg.table_fates import Fate, TableFates
from tistream_changefeed.verify.row_buckets import RowBuckets

FIRST, SECOND = ("d", "first"), ("d", "second")
Sides = dict[Name, tuple[Hashes, Hashes]]


def drawn(seed: int, count: int, changed: int) -> Sides:
    """Two tables of `count` rows, some of them twice, of which `changed` rows are missing, and as many are strange or
    once more there."""
    rng = np.random.default_rng(seed)
    out: Sides = {}
    for name in (FIRST, SECOND):
        wanted = rng.integers(0, 1 << 63, count, np.uint64)
        wanted = np.concatenate([wanted, wanted[: count // 10]])
        found = rng.permutation(wanted)
        if name == SECOND:
            found = np.concatenate([found[changed:], rng.integers(0, 1 << 63, changed, np.uint64), found[-changed:]])
        out[name] = wanted, found
    return out


def compared(sides: Sides, rows_max: int) -> tuple[RowBuckets, dict[Name, RowDifferences]]:
    buckets = RowBuckets(rows_max)

    def add() -> None:
        for name, (wanted, found) in sides.items():
            for hashes, there in ((wanted, False), (found, True)):
                for part in np.array_split(hashes, 7):
                    buckets.add(name, part, there=there)

    add()
    if buckets.undecided:
        buckets.begin_again()
        add()
    return buckets, buckets.results()


@pytest.mark.parametrize("rows_max", [1_000_000, 500])
def test_the_differences_are_those_of_all_rows(rows_max: int) -> None:
    sides = drawn(1, 5_000, 7)
    buckets, found = compared(sides, rows_max)
    assert not buckets.partial
    assert found == {name: ComparedRows([wanted], [there]).result() for name, (wanted, there) in sides.items()}
    assert (found[FIRST].equal, found[SECOND].equal) == (True, False)


def test_more_differences_than_fit_are_named_in_part_and_rows_are_counted() -> None:
    sides = drawn(2, 5_000, 1_000)
    buckets, found = compared(sides, 300)
    assert buckets.partial
    whole = ComparedRows([sides[SECOND][0]], [sides[SECOND][1]]).result()
    assert (found[SECOND].wanted, found[SECOND].found) == (whole.wanted, whole.found)
    assert 0 < len(found[SECOND].missing) < len(whole.missing)
    assert found[SECOND].missing.items() <= whole.missing.items()
    assert found[FIRST].equal


@pytest.mark.parametrize("lost", ["nothing", "a row", "a row for another"])
def test_tables_that_differ_are_known_though_their_differences_do_not_fit(lost: str) -> None:
    many, (wanted, found) = drawn(4, 20_000, 1)[FIRST][0], drawn(5, 1_000, 1)[FIRST]
    last = found[-1:] if lost == "nothing" else found[:0] if lost == "a row" else found[-1:] ^ np.uint64(1)
    sides = {FIRST: (many, many[:0]), SECOND: (wanted, np.concatenate([found[:-1], last]))}
    buckets, results = compared(sides, 50)
    assert buckets.partial
    assert results[SECOND].equal, "none of the buckets that are kept has its difference"
    assert buckets.differing == ({FIRST} if lost == "nothing" else {FIRST, SECOND})


def test_rows_of_one_table_are_not_those_of_another() -> None:
    sides = drawn(3, 2_000, 1)
    swapped = {FIRST: (sides[FIRST][0], sides[SECOND][0]), SECOND: (sides[SECOND][0], sides[FIRST][0])}
    _, found = compared(swapped, 100)
    assert not found[FIRST].equal
    assert not found[SECOND].equal


def table(table_id: int, name: str) -> TableVersion:
    return feed_tables.version([feed_tables.column("id")], name=name, table_id=table_id)


def test_a_table_is_followed_through_renames_truncates_and_its_drop() -> None:
    changes = [
        (1, TableChange(None, table(1, "a"))),
        (2, TableChange(table(1, "a"), table(2, "a"))),
        (3, TableChange(table(2, "a"), table(2, "b"))),
        (4, TableChange(table(9, "x"), table(9, "y"))),
        (5, TableChange(table(9, "y"), None)),
    ]
    fates = TableFates([table(2, "b")], changes)
    assert fates.of(1) == fates.of(2) == Fate(("d", "b"))
    assert fates.of(9) == Fate(("d", "y"), 5)
    assert fates.of(7) is None
    swapped = [(1, TableChange(table(1, "a"), table(2, "a"))), (2, TableChange(table(2, "a"), table(1, "a")))]
    assert TableFates([], swapped).of(1) is None
