"""Reads slices of a log backup by ranged GETs, adjacent slices with one request, and unpacks some of them at a time. A
slice is a byte range of an object, with the entries of one flush, table, region and column family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tistream.logbackup.entries import Unpacked, Unpacker
from tistream.logbackup.metadata import Slice
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

AT_ONCE_BYTES = 32 << 20  # stored bytes of one object that are in memory
PLAIN_BYTES = 8 << 20  # unpacked bytes of slices that are decoded at once, unless a single slice is larger


def read(log: ObjectStore, slices: Iterable[Slice], *, checked: bool = True) -> Iterator[list[Unpacked]]:
    """Read slices. Yields lists of slices with their unpacked bytes, which have passed their checks. Without `checked`,
    their SHA-256 is not checked.

    Raises:
        NotFoundYet: the object is gone.
        CorruptObject: the object is cut off, or fails its checks.
        Unavailable: the object store does not answer.
    """
    unpacker, held, size = Unpacker(), list[Unpacked](), 0
    for group in _groups(slices):
        end = max(one.offset + one.length for one in group)
        source = fetch_ranges(log, group[0].path, end, [(one.offset, one.length) for one in group])
        for one in group:
            if held and size + one.plain > PLAIN_BYTES:
                yield held
                held, size = [], 0
            held.append((one, unpacker.unpacked(one, source.view(one.offset, one.length), checked=checked)))
            size += one.plain
    if held:
        yield held


def _groups(slices: Iterable[Slice]) -> Iterator[list[Slice]]:
    """Group the slices of each object, in the order of their offsets. The slices of a group have at most AT_ONCE_BYTES
    bytes, or the group has a single larger slice."""
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
