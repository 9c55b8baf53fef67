"""Pointers into source row groups: every row is found again, once, whatever they are called in between."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.small_files import KEY, change, sound
from tistream.format.source_file import SourceFile, SourceGroup
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_source
from tistream_sorter.jobs.pointers import (
    NOWHERE,
    PointedFiles,
    fetches,
    groups_of,
    pointers,
    renumbered,
    rows_as_pointers,
    rows_of,
    rows_to_copy,
    sources_of,
)


def source(name: str, rows: list[int]) -> SourceFile:
    groups = [SourceGroup(index, 100 * index, 100, count, index) for index, count in enumerate(rows)]
    return SourceFile(name, 10_000, 9_000, tuple(groups))


SOURCES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4)


def everywhere(files: list[list[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([pointers(number, list(enumerate(rows))) for number, rows in enumerate(files)])


@settings(max_examples=examples(60), deadline=None)
@given(SOURCES, st.randoms(use_true_random=False), st.integers(0, 350))
def test_every_row_asked_for_is_read_once_and_found_at_its_place(files, rng, bytes_max) -> None:  # type: ignore[no-untyped-def]
    book = PointedFiles.of([source(f"file-{number}", rows) for number, rows in enumerate(files)])
    all_of_them = everywhere(files).tolist()
    asked = np.array(rng.sample(all_of_them, rng.randint(1, len(all_of_them))), np.int64)
    seen: dict[int, tuple[str, int, int]] = {}
    read: list[tuple[str, int]] = []
    for fetch in fetches(asked, book, bytes_max):
        read += [(fetch.source.key, group.index) for group in fetch.groups]
        assert len(fetch.groups) == 1 or sum(group.length for group in fetch.groups) <= bytes_max
        rows = [(fetch.source.key, group.index, row) for group in fetch.groups for row in range(group.rows)]
        for at, found in zip(fetch.requested.tolist(), fetch.found.tolist(), strict=True):
            assert at not in seen
            seen[at] = rows[found]
    expected = zip(sources_of(asked).tolist(), groups_of(asked).tolist(), rows_of(asked).tolist(), strict=True)
    assert [seen[at] for at in range(len(asked))] == [(f"file-{s}", group, row) for s, group, row in expected]
    assert len(read) == len(set(read))


@settings(max_examples=examples(60), deadline=None)
@given(SOURCES, st.randoms(use_true_random=False))
def test_a_part_names_what_its_rows_point_into_and_nothing_else(files, rng) -> None:  # type: ignore[no-untyped-def]
    """Two numbers of the shard may be the same file: a part that was read, and was split among shards before."""
    names = [f"file-{rng.randint(0, 1)}" for _ in files]
    same = {name: source(name, [9] * 4) for name in names}
    book = PointedFiles.of([same[name] for name in names])
    all_of_them = [int(NOWHERE), *everywhere(files).tolist()]
    pointer = np.array(rng.sample(all_of_them, rng.randint(1, len(all_of_them))), np.int64)
    named, own = book.named_by(pointer, np.full(len(pointer), 70))
    counts = Counter((names[p >> 47], p >> 31) for p in pointer.tolist() if p >= 0)
    for file in named:
        for group in file.groups:
            seen = [count for (name, at), count in counts.items() if (name, at & 0xFFFF) == (file.key, group.index)]
            assert group.unpacked == 70 * max(seen)
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
    later = PointedFiles.of([source("other", [1])])
    if len(named):
        back = renumbered(own, later.add(named, 1.0))
        assert [later.sources[s].key for s in sources_of(back[back >= 0])] == [
            names[s] for s in sources_of(pointer[pointer >= 0])
        ]


def test_values_are_left_where_they_are_only_where_a_row_group_holds_enough_of_them() -> None:
    pointer = np.concatenate([pointers(0, [(0, 3), (1, 2)]), pointers(1, [(0, 2)]), [NOWHERE]])
    weight = np.array([40, 0, 60, 50, 49, 0, 0, 500])
    found = rows_as_pointers(pointer, weight, at_hand=1, bytes_min=100)
    enough, too_little, not_here, no_pointer = [True, False, True], [False, False], [True, True], [False]
    assert found.tolist() == [*enough, *too_little, *not_here, *no_pointer]


@pytest.mark.parametrize("stated", [2**63 - 1, 2**40, 1_000])
def test_a_row_group_that_claims_much_is_fetched_alone(stated: int) -> None:
    groups = tuple(SourceGroup(index, 100 * index, 100, 2, index, stated) for index in range(200))
    book = PointedFiles.of([SourceFile("file", 30_000, 29_000, groups)])
    asked = pointers(0, [(index, 2) for index in range(200)])
    assert [len(fetch.groups) for fetch in fetches(asked, book, 500)] == [1] * 200


def test_what_compresses_is_fetched_in_chunks_of_what_it_unpacks_to() -> None:
    """Row groups of 1 MiB that are some 60 times smaller as stored: by their size as stored, one chunk."""
    rng = random.Random(5)
    words = [f"{rng.getrandbits(64):016x}" for _ in range(50)]
    values = [json.dumps({"at": at, "words": rng.choices(words, k=800)}).encode() for at in range(400)]
    data = sound(changes=[change(b"k%03d" % at, value=value) for at, value in enumerate(values)], rows_per_group=50)
    objects = MemoryObjectStore()
    objects.put(KEY, data)
    file = open_change_file(objects, KEY)
    groups = tuple(SourceGroup(g.index, g.offset, g.length, g.rows, g.crc32, g.unpacked) for g in file.change_groups)
    source = SourceFile(file.key, file.size, file.footer_start, groups)
    chunk = 2_000_000
    assert sum(group.length for group in groups) < chunk < sum(map(len, values)) // 3
    asked = pointers(0, [(group.index, group.rows) for group in groups])
    found = []
    for fetch in fetches(asked, PointedFiles.of([source]), chunk):
        table = read_source(objects, source, fetch.groups)
        assert table.nbytes <= chunk * 1.1
        found += table["value"].to_pylist()
    assert found == values


def few(groups: list[SourceGroup], row_bytes: float, bytes_max: int) -> list[bool]:
    """Of one row of each row group: whether so little is left of its row group that it is better copied."""
    book = PointedFiles.of([])
    book.add([SourceFile("file", 10_000, 9_000, tuple(groups))], row_bytes)
    left = rows_to_copy(pointers(0, [(group.index, 1) for group in groups]), book, bytes_max)
    return [bool(one) for one in left]


def test_a_heavy_row_beside_many_light_ones_is_not_little() -> None:
    """On average a row of the part weighs next to nothing."""
    heavy = [SourceGroup(0, 4, 3_000, 10, 0, 10_000_000)]
    light = [SourceGroup(index, 4, 3_000, 1_000, 0, 100_000) for index in range(1, 4)]
    assert few([*heavy, *light], 200.0, 64_000) == [False, True, True, True]


def test_a_row_group_that_does_not_tell_is_taken_for_what_the_part_weighs() -> None:
    groups = [SourceGroup(0, 4, 1_000, 10, 0), SourceGroup(1, 4, 9_000_000, 10, 0)]
    assert few(groups, 64_000.0, 64_000) == [True, False]
    assert few(groups, 64_001.0, 64_000) == [False, False]


def test_nothing_is_copied_that_is_nowhere_or_at_hand() -> None:
    book = PointedFiles.of([source("file", [3])])
    assert not rows_to_copy(np.append(pointers(0, [(0, 3)]), NOWHERE), book, 1 << 60).any()


def test_a_row_group_without_rows_that_claims_much_divides_by_none() -> None:
    assert few([SourceGroup(0, 4, 1_000, 0, 0, 2**63 - 1)], 1.0, 64_000) == [False]
