"""Pointers to values in row groups of change files (docs/adr/0007): one 64-bit integer per row. Pure.

A pointer is `source << 47 | row group << 31 | row in the group`, where a source is a change file. NOWHERE (null in a
pending part) marks a row that holds its value itself. In a pending part and in a manifest, `source` is a position in
the part's list of change files. Inside a shard it is a position in the shard's list: first the change files of this
tick, whose values are in memory, then those of the parts that it has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tistream.arrays import Bools, Int64s
from tistream.format.source_file import SourceFile, SourceGroup

GROUP_SHIFT, SOURCE_SHIFT = 31, 47
ROWS_MAX, GROUPS_MAX, SOURCES_MAX = 1 << GROUP_SHIFT, 1 << (SOURCE_SHIFT - GROUP_SHIFT), 1 << (63 - SOURCE_SHIFT)
NOWHERE = np.int64(-1)


def pointers(source: int, groups: Iterable[tuple[int, int]]) -> Int64s:
    """Make a pointer to every row of some row groups of one change file, group by group. `source`: the number of the
    file. `groups`: (index, number of rows)."""
    out = [np.zeros(0, np.int64)]
    for index, rows in groups:
        assert source < SOURCES_MAX
        assert index < GROUPS_MAX
        assert rows <= ROWS_MAX
        first = (source << SOURCE_SHIFT) | (index << GROUP_SHIFT)
        out.append(np.arange(first, first + rows, dtype=np.int64))
    return np.concatenate(out)


def sources_of(pointer: Int64s) -> Int64s:
    """The number of the change file of each pointer; -1 for NOWHERE."""
    return pointer >> SOURCE_SHIFT


def groups_of(pointer: Int64s) -> Int64s:
    """The index of each pointer's row group in its file."""
    return (pointer >> GROUP_SHIFT) & (GROUPS_MAX - 1)


def rows_of(pointer: Int64s) -> Int64s:
    """The number of each pointer's row in its row group."""
    return pointer & (ROWS_MAX - 1)


def renumbered(pointer: Int64s, numbers: Int64s) -> Int64s:
    """Give the change files of the pointers new numbers: file `s` gets the number `numbers[s]`. NOWHERE stays."""
    source = sources_of(pointer)
    rest = pointer & ((1 << SOURCE_SHIFT) - 1)
    there = pointer >= 0
    return np.where(there, (numbers[np.where(there, source, 0)] << SOURCE_SHIFT) | rest, NOWHERE)


def rows_to_copy(pointer: Int64s, book: PointedFiles, bytes_max: int) -> Bools:
    """Select the rows whose values are copied out of their change file, so that the file can be deleted: the rows of
    each row group of which the given pointers need at most about `bytes_max` bytes. Returns a mask; it is False for
    rows whose values are in memory."""
    away = sources_of(pointer) >= book.at_hand
    if not away.any():
        return away
    _, place, count = np.unique(pointer[away] >> GROUP_SHIFT, return_inverse=True, return_counts=True)
    row_bytes = np.array([book.group_row_bytes(number, index) for number, index in _pairs(pointer[away])])
    out = np.zeros(len(pointer), bool)
    out[np.flatnonzero(away)] = (count * row_bytes)[place] <= bytes_max
    return out


def rows_as_pointers(pointer: Int64s, weight: Int64s, at_hand: int, bytes_min: int) -> Bools:
    """Select the rows that are written as pointers; the others are written with their values. Returns a mask.

    Args:
        pointer: pointer of each row, or NOWHERE.
        weight: bytes of each row's values; 0 if they are not in memory.
        at_hand: the values of change files with a number below this are in memory; rows of the others must stay
            pointers.
        bytes_min: rows become pointers if those of their row group have at least this many bytes together.
    """
    there = pointer >= 0
    away = sources_of(pointer) >= at_hand
    heavy = there & ~away & (weight > 0)
    _, place = np.unique(pointer[heavy] >> GROUP_SHIFT, return_inverse=True)
    total = np.bincount(place, weights=weight[heavy]) if heavy.any() else np.zeros(0)
    out = there & away
    out[np.flatnonzero(heavy)] = total[place] >= bytes_min
    return out


@dataclass(slots=True)
class PointedFiles:
    """The change files to which the pointers of one shard refer. The number of a file in a pointer is its position
    here. The first `at_hand` files are read in this job, and their values are in memory; the others come from pending
    parts."""

    sources: list[SourceFile]
    at_hand: int
    row_bytes: list[float] = field(default_factory=list)  # by source: estimated bytes of a row's values

    @classmethod
    def of(cls, files: Sequence[SourceFile]) -> PointedFiles:
        return cls(list(files), len(files), [0.0] * len(files))

    def add(self, found: Sequence[SourceFile], row_bytes: float) -> Int64s:
        """Add the change files of a part, and return their numbers. `row_bytes`: estimated bytes of a row's values."""
        first = len(self.sources)
        assert first + len(found) <= SOURCES_MAX, "a shard has more sources than a pointer can address"
        self.sources += found
        self.row_bytes += [row_bytes] * len(found)
        return np.arange(first, first + len(found), dtype=np.int64)

    def group_row_bytes(self, number: int, index: int) -> float:
        """Estimate how many bytes of memory a row of one row group needs. The estimate comes from the group's entry; if
        its unpacked size is not known, it is at least the average in the pending part that points to the file."""
        group = group_at(self.sources[number], index)
        own = group.weight / max(group.rows, 1)
        return own if group.unpacked else max(own, self.row_bytes[number])

    def named_by(self, pointer: Int64s, weight: Int64s) -> tuple[tuple[SourceFile, ...], Int64s]:
        """Select the change files that pointers use, each with only the row groups in use. Returns them, and the
        pointers with new numbers of the files. A file that has two numbers gets one. `weight`: bytes of each row's
        values; 0 if they are not in memory. The `unpacked` size of a returned row group is at least the sum of its
        rows' weights."""
        places: dict[str, int] = {}
        groups: list[dict[int, SourceGroup]] = []
        numbers = np.full(len(self.sources) + 1, -1, np.int64)
        for (number, index), seen in zip(_pairs(pointer), _totals(pointer, weight), strict=True):
            source = self.sources[number]
            at = places.setdefault(source.key, len(places))
            if at == len(groups):
                groups.append({})
            group = group_at(source, index)
            known = groups[at].get(index, group).unpacked
            groups[at][index] = replace(group, unpacked=max(group.unpacked, known, seen))
            numbers[number] = at
        files = {source.key: source for source in self.sources}
        named = tuple(
            replace(files[key], groups=tuple(groups[at][index] for index in sorted(groups[at])))
            for key, at in places.items()
        )
        return named, renumbered(pointer, numbers)


def group_at(source: SourceFile, index: int) -> SourceGroup:
    """The row group of the file that has this index. The file must have it."""
    return next(group for group in source.groups if group.index == index)


def _pairs(pointer: Int64s) -> list[tuple[int, int]]:
    """The distinct pairs (change file, row group) of the pointers, in ascending order."""
    places = np.unique(pointer[pointer >= 0] >> GROUP_SHIFT).tolist()
    width = SOURCE_SHIFT - GROUP_SHIFT
    return [(place >> width, place & (GROUPS_MAX - 1)) for place in places]


def _totals(pointer: Int64s, weight: Int64s) -> list[int]:
    """For each pair that `_pairs` returns, the sum of the weights of its rows."""
    there = pointer >= 0
    _, place = np.unique(pointer[there] >> GROUP_SHIFT, return_inverse=True)
    return np.bincount(place, weights=weight[there]).astype(np.int64).tolist() if there.any() else []


@dataclass(frozen=True, slots=True)
class Fetch:
    """One read of neighbouring row groups of a change file. requested: for each row to read, the position of its
    pointer in the list of pointers. found: for each of them, the number of its row in the concatenated row groups."""

    source: SourceFile
    groups: tuple[SourceGroup, ...]
    requested: Int64s
    found: Int64s


def fetches(pointer: Int64s, book: PointedFiles, bytes_max: int) -> Iterator[Fetch]:
    """Plan the reads that together return the row of each pointer once. Each read has at most `bytes_max` unpacked
    bytes, or one row group. `pointer` must not contain NOWHERE."""
    order = np.argsort(pointer, kind="stable")
    ordered = pointer[order]
    for number, indexes in _by_source(ordered, book, bytes_max):
        source = book.sources[number]
        groups = tuple(group_at(source, index) for index in indexes)
        first = (number << SOURCE_SHIFT) | (indexes[0] << GROUP_SHIFT)
        last = (number << SOURCE_SHIFT) | (indexes[-1] << GROUP_SHIFT) | (ROWS_MAX - 1)
        here = slice(int(np.searchsorted(ordered, first)), int(np.searchsorted(ordered, last, side="right")))
        ends = np.cumsum([0, *(group.rows for group in groups)])
        place = np.searchsorted(np.asarray(indexes), groups_of(ordered[here]))
        yield Fetch(source, groups, order[here], ends[place] + rows_of(ordered[here]))


def _by_source(pointer: Int64s, book: PointedFiles, bytes_max: int) -> Iterator[tuple[int, list[int]]]:
    open_source, indexes, filled = -1, list[int](), 0
    for number, index in _pairs(pointer):
        weight = group_at(book.sources[number], index).weight
        if indexes and (number != open_source or filled + weight > bytes_max):
            yield open_source, indexes
            indexes, filled = [], 0
        open_source = number
        indexes.append(index)
        filled += weight
    if indexes:
        yield open_source, indexes
