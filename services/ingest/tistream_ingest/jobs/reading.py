"""Reads slices of a log backup by ranged GETs, adjacent slices with one request, and unpacks them one after the other.
A slice is a byte range of an object, with the entries of one flush, table, region and column family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tistream.logbackup.entries import unpacked
from tistream.logbackup.metadata import Slice
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

AT_ONCE_BYTES = 32 << 20  # stored bytes of one object that are in memory


def read(log: ObjectStore, slices: Iterable[Slice]) -> Iterator[tuple[Slice, bytes]]:
    """Read slices. Yields each slice with its unpacked bytes, which have passed their checks.

    Raises:
        NotFoundYet: the object is gone.
        CorruptObject: the object is cut off, or fails its checks.
    """
    for group in _groups(slices):
        end = max(one.offset + one.length for one in group)
        source = fetch_ranges(log, group[0].path, end, [(one.offset, one.length) for one in group])
        for one in group:
            yield one, unpacked(one, bytes(source.view(one.offset, one.length)))


def _groups(slices: Iterable[Slice]) -> Iterator[list[Slice]]:
    """Group adjacent slices of one object, in order. A group has at most AT_ONCE_BYTES bytes, or a single larger
    slice."""
    group: list[Slice] = []
    size = 0
    for one in sorted(slices, key=lambda one: (one.path, one.offset)):
        if group and (one.path != group[0].path or size + one.length > AT_ONCE_BYTES):
            yield group
            group, size = [], 0
        group.append(one)
        size += one.length
    if group:
        yield group
