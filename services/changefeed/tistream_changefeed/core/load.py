"""The progress of a feed's initial load: with `snapshot=now`, a feed first sends the rows of its tables as of one ts.
Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.wire.bulk.changefeeds import HeldBy


@dataclass(frozen=True, slots=True)
class Load:
    """The progress of the load of the initial rows, those as of `ts`. Tables are loaded in the order of their logical
    ids, and the rows of a table in the order of raw keys. The sink has the rows of all tables with ids below
    `table_id`, and those of this table, whose name is `table`, up to and with the raw key `key`. `table_id` 0: nothing
    is loaded, and the tables may not exist yet."""

    ts: int
    table_id: int = 0
    table: str = ""
    key: bytes = b""

    @property
    def held_by(self) -> HeldBy:
        """Convert the load to an entry of `held_by` in a status."""
        reason = f"its rows as of {self.ts} are loaded first; changes above that follow"
        return HeldBy(stage="sink", object=self.table or "all tables", reason=reason)
