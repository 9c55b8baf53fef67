"""Follows tables through the DDLs of a range: a rename keeps a table's id, a TRUNCATE gives it another one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.protocols.table_change import TableChange


@dataclass(frozen=True, slots=True)
class Fate:
    """What has become of a table. `name`: the one that it has now, or had when it was dropped at `dropped_ts`."""

    name: Name
    dropped_ts: int | None = None


class TableFates:
    """The fates of the tables of a range. `now`: the tables at its end. `changes`: those by the DDLs of the range, each
    with its commit_ts, in order."""

    def __init__(self, now: Iterable[TableVersion], changes: Iterable[tuple[int, TableChange]]) -> None:
        self.now = tuple(now)
        self._now = {version.head.id: Fate(version.name) for version in self.now}
        self._next: dict[int, int] = {}
        self._dropped: dict[int, Fate] = {}
        for ts, change in changes:
            before, after = change.before, change.after
            if before is not None and after is None:
                self._dropped[before.head.id] = Fate(before.name, ts)
            elif before is not None and after is not None and before.head.id != after.head.id:
                self._next[before.head.id] = after.head.id

    def of(self, table_id: int) -> Fate | None:
        """The fate of the table that had this id in the range; None if it is not known, because the feed leaves out a
        DDL that has renamed or dropped it."""
        passed: set[int] = set()
        while table_id not in self._now and table_id in self._next and table_id not in passed:
            passed.add(table_id)
            table_id = self._next[table_id]
        return self._now.get(table_id) or self._dropped.get(table_id)
