"""References from a manifest to change files. A pending entry may leave its value in the change file and point there
(docs/adr/0007). Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

WEIGHT_MAX = 1 << 40  # a larger size counts as this one, so that sums fit 64 bits; no reader accepts that size


def weight(length: int, unpacked: int) -> int:
    """Estimated bytes of a row group in a reader's memory: the larger of `unpacked`, the size that the footer states,
    and `length`, the bytes that are fetched. The footer may be wrong."""
    return max(length, min(unpacked, WEIGHT_MAX))


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """One row group of changes: the bytes `[offset, offset + length)` of the file, their CRC-32, the number of rows,
    and `unpacked`, the unpacked size in bytes that the footer states (0: unknown)."""

    index: int
    offset: int
    length: int
    rows: int
    crc32: int
    unpacked: int = 0

    @property
    def weight(self) -> int:
        """Estimated bytes in a reader's memory; see the function `weight`."""
        return weight(self.length, self.unpacked)

    @property
    def key_min(self) -> None:
        """Always None: a manifest does not store the bounds of keys, which are needed only when a file is routed to
        tasks."""

    @property
    def key_max(self) -> None:
        """Always None, like `key_min`."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A change file, with the row groups that pending entries point into. The file must not be deleted while a live
    manifest names it.

    `footer_start` is the offset of the Parquet footer.
    """

    key: str
    size: int
    footer_start: int
    groups: tuple[SourceGroup, ...]

    def to_json(self) -> list[Any]:
        """Encode the reference as a JSON array of its fields, in order, with row groups as arrays."""
        return [self.key, self.size, self.footer_start, [list(astuple(group)) for group in self.groups]]

    @classmethod
    def from_json(cls, data: list[Any]) -> SourceFile:
        key, size, footer_start, groups = data
        return cls(key, size, footer_start, tuple(SourceGroup(*group) for group in groups))
