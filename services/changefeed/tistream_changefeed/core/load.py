"""The load of a feed that begins with the rows of its tables as of a ts (`snapshot=now`). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.wire.bulk.changefeeds import HeldBy


@dataclass(frozen=True, slots=True)
class Load:
    """How far the rows as of `ts` are in the sink. Tables are loaded in the order of their logical ids, and the rows of
    a table in the order of raw keys: those up to `key` of the table `table_id`, called `table`, and those of all tables
    with lower ids are there. With the id 0 the tables may not exist yet."""

    ts: int
    table_id: int = 0
    table: str = ""
    key: bytes = b""

    @property
    def held_by(self) -> HeldBy:
        """Convert the load to an entry of `held_by` in a status."""
        reason = f"its rows as of {self.ts} are loaded first; changes above that follow"
        return HeldBy(stage="sink", object=self.table or "all tables", reason=reason)
