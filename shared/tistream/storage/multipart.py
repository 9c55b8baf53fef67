"""How a large object is cut into parts, and how many requests that takes."""

from __future__ import annotations

from collections.abc import Iterator

MULTIPART_BYTES = 64 << 20  # from this size on; a smaller object is one request
PART_BYTES = 16 << 20


def parts_of(body: memoryview, part_bytes: int = PART_BYTES) -> Iterator[memoryview]:
    """Views of `body`, in order, that together are all of it; the last may be smaller."""
    for start in range(0, len(body), part_bytes):
        yield body[start : start + part_bytes]


def put_requests(size: int) -> int:
    """The number of requests that S3 needs for an object of this size: begin, parts, complete; or one."""
    return 1 if size < MULTIPART_BYTES else 2 - (-size // PART_BYTES)
