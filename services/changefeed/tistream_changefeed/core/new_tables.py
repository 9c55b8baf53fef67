"""The order to a sink to create missing tables, before a feed's initial rows are loaded into them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.schema.visible import TableVersion


@dataclass(frozen=True, slots=True)
class NewTables:
    """A Mark that orders a sink to create the tables of `versions` that do not exist, before their rows as of the
    feed's start_ts are loaded."""

    versions: tuple[TableVersion, ...]

    @property
    def size(self) -> int:
        """Return 0: this mark adds no bytes of messages (implements Mark.size)."""
        return 0

    @property
    def content(self) -> None:
        """Return None: this mark is not a message (implements Mark.content)."""
