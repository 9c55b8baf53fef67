"""Into which parts a large object is cut, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator

MULTIPART_BYTES = 64 << 20  # from this size on; smaller objects are one request
PART_BYTES = 16 << 20


def parts_of(body: memoryview, part_bytes: int = PART_BYTES) -> Iterator[memoryview]:
    """Views of `body`, in order, that hold all of it; the last may be smaller."""
    for start in range(0, len(body), part_bytes):
        yield body[start : start + part_bytes]


def put_requests(size: int) -> int:
    """How many requests S3 takes for an object of so many bytes: begin, parts, complete; or one."""
    return 1 if size < MULTIPART_BYTES else 2 - (-size // PART_BYTES)
