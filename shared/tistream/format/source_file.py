"""Change files that pending parts point into, as a manifest names them (docs/adr/0007). Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """One row group of changes: its bytes `[offset, offset + length)`, how many rows, and their CRC-32."""

    index: int
    offset: int
    length: int
    rows: int
    crc32: int

    @property
    def key_min(self) -> None:
        """Not stated: what was routed by it is known by now."""

    @property
    def key_max(self) -> None:
        """Not stated."""


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
