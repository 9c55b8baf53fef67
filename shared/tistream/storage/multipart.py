"""Splits a large object into parts, and counts the requests of its upload."""

from __future__ import annotations

from collections.abc import Iterator

MULTIPART_BYTES = 64 << 20  # an object of at least this size is uploaded in parts; a smaller one is one request
PART_BYTES = 16 << 20


def parts_of(body: memoryview, part_bytes: int = PART_BYTES) -> Iterator[memoryview]:
    """Views of consecutive parts of `body`, in order. All have `part_bytes` bytes, except the last one, which may be
    smaller."""
    for start in range(0, len(body), part_bytes):
        yield body[start : start + part_bytes]


def put_requests(size: int) -> int:
    """The number of requests that a put of `size` bytes to S3 makes: one, or for a large object a begin, the parts and
    a completion."""
    return 1 if size < MULTIPART_BYTES else 2 - (-size // PART_BYTES)
