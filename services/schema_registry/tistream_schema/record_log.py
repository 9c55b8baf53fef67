"""The records of a tenant's schema log in memory, as the registry serves them: numbered lines of JSON, most of them
compressed."""

from __future__ import annotations

from collections.abc import Iterable

import zstandard

BLOCK_LINES = 1_000


class RecordLog:
    """The records of one tenant, in memory, as an append-only list of JSON lines. There may be a hundred thousand of
    them, with a few hundred bytes each. The first line has the number `first` + 1, and the last one the number
    `end`."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self._blocks: list[bytes] = []  # compressed blocks of BLOCK_LINES lines each
        self._tail: list[bytes] = []

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK_LINES + len(self._tail)

    @property
    def end(self) -> int:
        return self.first + len(self)

    def append(self, lines: Iterable[bytes]) -> None:
        """Add lines of JSON, which must not contain a line feed."""
        self._tail += lines
        while len(self._tail) >= BLOCK_LINES:
            block = b"\n".join(self._tail[:BLOCK_LINES])
            self._blocks.append(zstandard.compress(block, 1))
            del self._tail[:BLOCK_LINES]

    def read(self, after: int) -> list[bytes]:
        """The lines after number `after`, at most BLOCK_LINES; empty if there are no more. `after` must be >= first."""
        assert after >= self.first, f"line {after + 1} is not kept: the first is {self.first + 1}"
        block, skip = divmod(after - self.first, BLOCK_LINES)
        if block < len(self._blocks):
            return zstandard.decompress(self._blocks[block]).split(b"\n")[skip:]
        return self._tail[skip:] if block == len(self._blocks) else []
