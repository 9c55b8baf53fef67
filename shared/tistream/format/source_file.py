"""Change files that pending parts point into, as a manifest names them (docs/adr/0007). Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

WEIGHT_MAX = 1 << 40  # any claim above counts as this: sums of them fit 64 bits, and no reader takes that much


def weight(length: int, unpacked: int) -> int:
    """Bytes that a row group takes in a reader's memory, about: as its footer states, which nothing vouches for, and at
    least as many as are fetched."""
    return max(length, min(unpacked, WEIGHT_MAX))


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """One row group of changes: its bytes `[offset, offset + length)`, its number of rows, their CRC-32, and the bytes
    that its footer says they unpack to (0: unknown)."""

    index: int
    offset: int
    length: int
    rows: int
    crc32: int
    unpacked: int = 0

    @property
    def weight(self) -> int:
        """See `weight`."""
        return weight(self.length, self.unpacked)

    @property
    def key_min(self) -> None:
        """Not stored: routing, which uses it, is done."""

    @property
    def key_max(self) -> None:
        """Not stored."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A change file and those of its row groups that are pointed into; none of it may be deleted before the pointers.

    `footer_start` is where the Parquet footer begins.
    """

    key: str
    size: int
    footer_start: int
    groups: tuple[SourceGroup, ...]

    def to_json(self) -> list[Any]:
        """Plain JSON: fields in order, row groups as arrays."""
        return [self.key, self.size, self.footer_start, [list(astuple(group)) for group in self.groups]]

    @classmethod
    def from_json(cls, data: list[Any]) -> SourceFile:
        key, size, footer_start, groups = data
        return cls(key, size, footer_start, tuple(SourceGroup(*group) for group in groups))
