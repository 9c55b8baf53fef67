"""Fetches byte ranges of an object with few requests. The result is a SparseFile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tistream.errors import CorruptObject
from tistream.format.byte_ranges import ByteRange, coalesce
from tistream.format.sparse_file import SparseFile
from tistream.storage.object_store import ObjectStore


def fetch_ranges(
    objects: ObjectStore,
    key: str,
    size: int,
    ranges: Iterable[ByteRange],
    held: Sequence[tuple[int, bytes]] = (),
) -> SparseFile:
    """Fetch `ranges` of an object of `size` bytes. `held` has pieces that the caller has already, as (offset, bytes); a
    range that lies completely in one of them is not fetched. The result has the bytes of both.

    Raises:
        NotFoundYet: the object is gone.
        CorruptObject: the object is shorter than `size` implies.
        Unavailable: the object store does not answer.
    """
    missing = [
        (start, length)
        for start, length in ranges
        if not any(at <= start and start + length <= at + len(body) for at, body in held)
    ]
    pieces: list[tuple[int, bytes | memoryview]] = []
    for start, length in coalesce(missing):
        body = objects.get_range(key, start, length)
        if len(body) != length:
            # An empty answer does not show where the object ends.
            end = f"ends at {start + len(body)}" if body else f"has at most {start} bytes"
            raise CorruptObject(key, f"{end}, and should have {size}: truncated")
        pieces.append((start, body))
    return SparseFile(size, _disjoint(pieces, held))


def _disjoint(
    pieces: list[tuple[int, bytes | memoryview]], held: Sequence[tuple[int, bytes]]
) -> list[tuple[int, bytes | memoryview]]:
    """Cut pieces (offset, bytes) so that they do not overlap, because a SparseFile looks only at the last piece that
    begins before an offset. The result includes those of `held`."""
    out: list[tuple[int, bytes | memoryview]] = []
    end = 0
    for start, body in sorted([*pieces, *held], key=lambda piece: piece[0]):
        if start + len(body) <= end:
            continue
        skip = max(0, end - start)
        out.append((start + skip, memoryview(body)[skip:]))
        end = start + len(body)
    return out
