"""Finds the tables of a DDL as they were before and after it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name, TableVersion, fold

TableAt = Callable[[int, str, str], TableVersion | None]
"""The table, view or sequence that has the name (database, table) at a ts; None if no object has it."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table before and after a DDL. `before` is None if the table did not exist, and `after` if it does not exist
    any more."""

    before: TableVersion | None = None
    after: TableVersion | None = None

    @property
    def names(self) -> tuple[Name, ...]:
        """The names of the table before and after the DDL."""
        return tuple(version.name for version in (self.before, self.after) if version is not None)


def table_changes(event: DdlEvent, table_at: TableAt) -> tuple[TableChange, ...]:
    """Find the tables that a DDL changed, by `table_at`; the table that the DDL names comes first. Empty for a DDL of a
    database.

    A table keeps its id when it is renamed. It gets another id when it is truncated or exchanged with a partition; then
    the table that has its name afterwards counts as the same table.
    """
    if not event.table:
        return ()
    own = (event.database, event.table)
    names = dict.fromkeys((own, *(name for name in event.involved if name[1])))
    before, after = (_found(names, table_at, ts) for ts in (event.commit_ts - 1, event.commit_ts))
    kept = {version.head.id for version in after}
    gone = {version.folded: version for version in before if version.head.id not in kept}
    earlier = {version.head.id: version for version in before}
    out = [TableChange(earlier.get(one.head.id) or gone.pop(one.folded, None), one) for one in after]
    out += [TableChange(one, None) for one in gone.values()]
    wanted = (fold(own[0]), fold(own[1]))
    return tuple(sorted(out, key=lambda change: wanted != tuple(map(fold, change.names[-1]))))


def dropped_tables(event: DdlEvent, table_at: TableAt) -> tuple[TableChange, ...]:
    """Find the tables that a DDL of a database dropped, by `table_at`."""
    names = [name for name in event.involved if name[1]]
    before, after = (_found(names, table_at, ts) for ts in (event.commit_ts - 1, event.commit_ts))
    kept = {version.head.id for version in after}
    return tuple(TableChange(one, None) for one in before if one.head.id not in kept)


def _found(names: Iterable[Name], table_at: TableAt, ts: int) -> list[TableVersion]:
    """The tables that have these names at a ts, each once."""
    found = (table_at(ts, *name) for name in names)
    return list({version.head.id: version for version in found if version is not None}.values())
