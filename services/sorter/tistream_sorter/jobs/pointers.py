"""Pointers to values in source row groups (docs/adr/0007): one 64-bit integer a row. Pure.

`source << 47 | row group << 31 | row in the group`; NOWHERE (null in a part) is a row that holds its value itself.
In a part, and in a manifest, `source` counts the part's own sources; inside a shard it counts the shard's: first its
files, whose rows are at hand, then the sources of the parts that it has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tistream.format.source_file import SourceFile, SourceGroup

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

GROUP_SHIFT, SOURCE_SHIFT = 31, 47
ROWS_MAX, GROUPS_MAX, SOURCES_MAX = 1 << GROUP_SHIFT, 1 << (SOURCE_SHIFT - GROUP_SHIFT), 1 << (63 - SOURCE_SHIFT)
NOWHERE = np.int64(-1)


def pointers(source: int, groups: Iterable[tuple[int, int]]) -> Int64s:
    """Of every row of the given (index, rows) row groups of one source, one group after the other."""
    out = [np.zeros(0, np.int64)]
    for index, rows in groups:
        assert source < SOURCES_MAX
        assert index < GROUPS_MAX
        assert rows <= ROWS_MAX
        first = (source << SOURCE_SHIFT) | (index << GROUP_SHIFT)
        out.append(np.arange(first, first + rows, dtype=np.int64))
    return np.concatenate(out)


def sources_of(pointer: Int64s) -> Int64s:
    """Which source each points into; -1 for NOWHERE."""
    return pointer >> SOURCE_SHIFT


def groups_of(pointer: Int64s) -> Int64s:
    """The index of the row group, in its file."""
    return (pointer >> GROUP_SHIFT) & (GROUPS_MAX - 1)


def rows_of(pointer: Int64s) -> Int64s:
    """The row, in its row group."""
    return pointer & (ROWS_MAX - 1)


def renumbered(pointer: Int64s, numbers: Int64s) -> Int64s:
    """The same rows, source `s` being called `numbers[s]`. NOWHERE stays."""
    source = sources_of(pointer)
    rest = pointer & ((1 << SOURCE_SHIFT) - 1)
    there = pointer >= 0
    return np.where(there, (numbers[np.where(there, source, 0)] << SOURCE_SHIFT) | rest, NOWHERE)


def few_left(pointer: Int64s, book: SourceBook, bytes_max: int) -> Bools:
    """Rows whose values are elsewhere, in row groups of which so little is still pointed to that it is better fetched:
    at most about `bytes_max` bytes each. Else a source would have to stay for its last row."""
    away = sources_of(pointer) >= book.at_hand
    if not away.any():
        return away
    _, place, count = np.unique(pointer[away] >> GROUP_SHIFT, return_inverse=True, return_counts=True)
    row_bytes = np.array([book.group_row_bytes(number, index) for number, index in _pairs(pointer[away])])
    out = np.zeros(len(pointer), bool)
    out[np.flatnonzero(away)] = (count * row_bytes)[place] <= bytes_max
    return out


def who_points(pointer: Int64s, weight: Int64s, at_hand: int, bytes_min: int) -> Bools:
    """Which rows are written as pointers; the others hold their value.

    Args:
        pointer: of each row, or NOWHERE.
        weight: bytes of each row's values; 0 where they are not here.
        at_hand: sources below this number have their values here; those from it on must stay pointers.
        bytes_min: of one row group's rows together, for them to point.
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
class SourceBook:
    """The sources of one shard, by number. The first `at_hand` are its own files."""

    sources: list[SourceFile]
    at_hand: int
    row_bytes: list[float] = field(default_factory=list)  # about what a row's values weigh, by source

    @classmethod
    def of(cls, files: Sequence[SourceFile]) -> SourceBook:
        return cls(list(files), len(files), [0.0] * len(files))

    def add(self, found: Sequence[SourceFile], row_bytes: float) -> Int64s:
        """Number a part's sources; the number of each."""
        first = len(self.sources)
        assert first + len(found) <= SOURCES_MAX, "a shard reads more sources than pointers can count"
        self.sources += found
        self.row_bytes += [row_bytes] * len(found)
        return np.arange(first, first + len(found), dtype=np.int64)

    def group_row_bytes(self, number: int, index: int) -> float:
        """About what a row of one row group weighs: as its footer states, or at least as the part's rows do."""
        group = group_at(self.sources[number], index)
        own = group.weight / max(group.rows, 1)
        return own if group.unpacked else max(own, self.row_bytes[number])

    def named_by(self, pointer: Int64s, weight: Int64s) -> tuple[tuple[SourceFile, ...], Int64s]:
        """The sources that are pointed into, each with only the row groups that are; and the pointers with
        the sources' places in that tuple. One file under two numbers becomes one source.

        `weight` is of each row's values, 0 where they are not here: a row group unpacks to no less than was seen of it.
        """
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
    """The row group with that index in its file."""
    return next(group for group in source.groups if group.index == index)


def _pairs(pointer: Int64s) -> list[tuple[int, int]]:
    """(source, row group) of all that are pointed into, in order."""
    places = np.unique(pointer[pointer >= 0] >> GROUP_SHIFT).tolist()
    width = SOURCE_SHIFT - GROUP_SHIFT
    return [(place >> width, place & (GROUPS_MAX - 1)) for place in places]


def _totals(pointer: Int64s, weight: Int64s) -> list[int]:
    """Of each of those, what its rows weigh together."""
    there = pointer >= 0
    _, place = np.unique(pointer[there] >> GROUP_SHIFT, return_inverse=True)
    return np.bincount(place, weights=weight[there]).astype(np.int64).tolist() if there.any() else []


@dataclass(frozen=True, slots=True)
class Fetch:
    """Neighbouring row groups of one source to be read together, and `rows`: for each row asked for, its place in what
    is asked, and its place among the rows of the groups, one group after the other."""

    source: SourceFile
    groups: tuple[SourceGroup, ...]
    asked: Int64s
    found: Int64s


def fetches(pointer: Int64s, book: SourceBook, bytes_max: int) -> Iterator[Fetch]:
    """Reads that together bring every row once, row group by row group; each of at most `bytes_max` bytes, or one
    row group: bytes unpacked, since that is what is held. All of `pointer` must point."""
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


def _by_source(pointer: Int64s, book: SourceBook, bytes_max: int) -> Iterator[tuple[int, list[int]]]:
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
