"""Collects rows for files that are not full yet, and decides where a file ends. Pure: where files end depends only on
the rows since the last flush, not on the pieces in which they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream_changefeed.sinks.storage.placed_rows import PlacedRows

FILES_MAX = 4  # the rows in memory, in units of the size of a file


@dataclass(slots=True)
class _OpenFile:
    rows: list[pa.Table] = field(default_factory=list)
    bytes: int = 0


EndedFile = tuple[str, list[pa.Table]]
"""A file that has ended: its directory and its rows."""


@dataclass(slots=True)
class OpenFiles:
    """The rows of each directory that are in no file yet. A file ends behind the row with which it has at least
    `file_bytes` bytes. All files end when FILES_MAX times as many bytes have come, so that many tables do not fill the
    memory."""

    file_bytes: int
    _open: dict[str, _OpenFile] = field(default_factory=dict)
    _total: int = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, rows: PlacedRows, directories: Sequence[str]) -> Iterator[EndedFile]:
        """Add rows. `directories[i]` is the directory of `rows.places[i]`. Yields the files that end, each as
        (directory, rows)."""
        filled = np.cumsum(rows.sizes)
        start = done = 0
        while start < len(rows):
            room = FILES_MAX * self.file_bytes - self._total
            end = min(int(np.searchsorted(filled, done + room)) + 1, len(rows))
            piece = rows.between(start, end)
            for number, table, sizes in piece.parts():
                yield from self._append(directories[number], table, sizes)
            start, self._total = end, self._total + int(filled[end - 1]) - done
            done = int(filled[end - 1])
            if self._total >= FILES_MAX * self.file_bytes:
                yield from self.take()

    def take(self) -> list[EndedFile]:
        """End all files. Returns (directory, rows) of each, sorted by directory."""
        found, self._open, self._total = self._open, {}, 0
        return [(directory, one.rows) for directory, one in sorted(found.items())]

    def _append(self, directory: str, rows: pa.Table, sizes: Int64s) -> Iterator[EndedFile]:
        filled = np.cumsum(sizes)
        start = done = 0
        while start < len(sizes):
            one = self._open.setdefault(directory, _OpenFile())
            end = min(int(np.searchsorted(filled, done + self.file_bytes - one.bytes)) + 1, len(sizes))
            one.rows.append(rows.slice(start, end - start))
            one.bytes += int(filled[end - 1]) - done
            start, done = end, int(filled[end - 1])
            if one.bytes >= self.file_bytes:
                del self._open[directory]
                yield directory, one.rows
