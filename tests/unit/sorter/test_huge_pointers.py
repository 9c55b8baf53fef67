"""Pointers into source row groups: every row is found again, once, whatever they are called in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tistream.format.source_file import SourceFile, SourceGroup
from tistream_sorter.jobs.pointers import (
    NOWHERE,
    SourceBook,
    fetches,
    groups_of,
    pointers,
    renumbered,
    rows_of,
    sources_of,
    who_points,
)


def source(name: str, rows: list[int]) -> SourceFile:
    groups = [SourceGroup(index, 100 * index, 100, count, index) for index, count in enumerate(rows)]
    return SourceFile(name, 10_000, 9_000, tuple(groups))


SOURCES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4)


def everywhere(files: list[list[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([pointers(number, list(enumerate(rows))) for number, rows in enumerate(files)])


@settings(max_examples=60, deadline=None)
@given(SOURCES, st.randoms(use_true_random=False), st.integers(0, 350))
def test_every_row_asked_for_is_read_once_and_found_at_its_place(files, rng, bytes_max) -> None:  # type: ignore[no-untyped-def]
    book = SourceBook.of([source(f"file-{number}", rows) for number, rows in enumerate(files)])
    all_of_them = everywhere(files).tolist()
    asked = np.array(rng.sample(all_of_them, rng.randint(1, len(all_of_them))), np.int64)
    seen: dict[int, tuple[str, int, int]] = {}
    read: list[tuple[str, int]] = []
    for fetch in fetches(asked, book, bytes_max):
        read += [(fetch.source.key, group.index) for group in fetch.groups]
        assert len(fetch.groups) == 1 or sum(group.length for group in fetch.groups) <= bytes_max
        rows = [(fetch.source.key, group.index, row) for group in fetch.groups for row in range(group.rows)]
        for at, found in zip(fetch.asked.tolist(), fetch.found.tolist(), strict=True):
            assert at not in seen
            seen[at] = rows[found]
    expected = zip(sources_of(asked).tolist(), groups_of(asked).tolist(), rows_of(asked).tolist(), strict=True)
    assert [seen[at] for at in range(len(asked))] == [(f"file-{s}", group, row) for s, group, row in expected]
    assert len(read) == len(set(read))


@settings(max_examples=60, deadline=None)
@given(SOURCES, st.randoms(use_true_random=False))
def test_a_part_names_what_its_rows_point_into_and_nothing_else(files, rng) -> None:  # type: ignore[no-untyped-def]
    """Two numbers of the shard may be the same file: a part that was read, and was split among shards before."""
    names = [f"file-{rng.randint(0, 1)}" for _ in files]
    same = {name: source(name, [9] * 4) for name in names}
    book = SourceBook.of([same[name] for name in names])
    all_of_them = [int(NOWHERE), *everywhere(files).tolist()]
    pointer = np.array(rng.sample(all_of_them, rng.randint(1, len(all_of_them))), np.int64)
    named, own = book.named_by(pointer)
    assert sorted(file.key for file in named) == sorted({names[s] for s in sources_of(pointer).tolist() if s >= 0})
    assert ((own == NOWHERE) == (pointer == NOWHERE)).all()
    for before, after in zip(pointer.tolist(), own.tolist(), strict=True):
        if before >= 0:
            there = named[after >> 47]
            assert there.key == names[before >> 47]
            assert (after >> 31) & 0xFFFF in {group.index for group in there.groups}
            assert after & ((1 << 47) - 1) == before & ((1 << 47) - 1)
    pairs = {(sources_of(own)[at], groups_of(own)[at]) for at in np.flatnonzero(own >= 0)}
    assert sum(len(file.groups) for file in named) == len(pairs)
    later = SourceBook.of([source("other", [1])])
    if len(named):
        back = renumbered(own, later.add(named, 1.0))
        assert [later.sources[s].key for s in sources_of(back[back >= 0])] == [
            names[s] for s in sources_of(pointer[pointer >= 0])
        ]


def test_values_are_left_where_they_are_only_where_a_row_group_holds_enough_of_them() -> None:
    pointer = np.concatenate([pointers(0, [(0, 3), (1, 2)]), pointers(1, [(0, 2)]), [NOWHERE]])
    weight = np.array([40, 0, 60, 50, 49, 0, 0, 500])
    found = who_points(pointer, weight, at_hand=1, bytes_min=100)
    enough, too_little, not_here, no_pointer = [True, False, True], [False, False], [True, True], [False]
    assert found.tolist() == [*enough, *too_little, *not_here, *no_pointer]
