"""The mark that has a sink create tables. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.schema.visible import TableVersion


@dataclass(frozen=True, slots=True)
class NewTables:
    """Tables that a sink creates if they do not exist, before their rows as of the feed's start_ts are loaded:
    implements Mark."""

    versions: tuple[TableVersion, ...]

    @property
    def size(self) -> int:
        """Implement Mark.size."""
        return 0

    @property
    def content(self) -> None:
        """Implement Mark.content: no messages are counted."""
