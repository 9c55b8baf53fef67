"""A read-only file of which only some byte ranges are present. Range GETs fetch them, and a Parquet reader reads
them."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable


class SparseFile(io.RawIOBase):
    """A file of `size` bytes, of which only `pieces` (offset, bytes) are available. Reads of other bytes raise
    ValueError.

    A read returns a view of a piece, and copies only if it spans adjacent pieces.
    """

    def __init__(self, size: int, pieces: Iterable[tuple[int, bytes | memoryview]]) -> None:
        super().__init__()
        self._size = size
        held = sorted(((start, memoryview(body)) for start, body in pieces), key=lambda piece: piece[0])
        self._starts = [start for start, _ in held]
        self._bodies = [body for _, body in held]
        self._at = 0

    def view(self, start: int, length: int) -> memoryview:
        """A view of the bytes `[start, start + length)`. Raises ValueError if some of them are not available."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0:
            offset = start - self._starts[index]
            found = self._bodies[index][offset : offset + length]
            if len(found) == length:
                return found
            if found:
                return memoryview(bytes(found) + bytes(self.view(start + len(found), length - len(found))))
        if not length:
            return memoryview(b"")
        raise ValueError(f"bytes [{start}, {start + length}) of {self._size} are not available")

    def read(self, size: int = -1, /) -> memoryview:
        """Up to `size` bytes at the current position. The result is a memoryview, which pyarrow accepts."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        found = self.view(self._at, max(0, end - self._at))
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
