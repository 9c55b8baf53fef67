"""Looks after the tables that a feed has created: another program may drop or replace them, or roll them back."""

from __future__ import annotations

from collections.abc import Sequence

from tistream_changefeed.sinks.iceberg.kept.known_tables import KnownTables
from tistream_changefeed.sinks.iceberg.lake import Lake, gone
from tistream_changefeed.sinks.iceberg.marks import Newest
from tistream_changefeed.sinks.iceberg.target import Identifier, set_aside_prefix


class CreatedTables:
    """The tables that a feed has created. `known` has their ids (UUIDs of the catalog). `moving`: the old and new names
    of the tables that a DDL in progress may rename; empty without such a DDL. Every call may raise FeedFailed."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.known = KnownTables({}, "")
        self.moving: Sequence[Identifier] = ()

    def check(self, identifier: Identifier, uuid: str | None) -> None:
        """Check that the table which the feed created as `identifier` still has this name, or has lost it by
        the DDL in progress. A table that this DDL has renamed is recorded under its new name; one that was set
        aside is forgotten. `uuid`: the id of the table that has the name now, which is recorded too; None if no
        table has it. Raises FeedFailed if another program has dropped, renamed or replaced the table."""
        for lost in self.known.at(identifier) - {uuid}:
            place = self._place_of(lost, identifier)
            if place in self.moving:
                self.known.put(lost, place)
            else:
                self.known.forget(lost)
        if uuid is not None:
            self.known.put(uuid, identifier)

    def shows_newest(self, uuid: str, newest: Newest | None) -> bool:
        """Whether the current snapshot of a table includes the newest commit that the feed has made to it; False after
        a rollback. `newest` is that commit according to the table itself; None if it shows no commit of a feed."""
        known = self.known.newest(uuid)
        return not known if newest is None else newest.current and newest.sequence >= known

    def accept_gone(self) -> None:
        """Forget the tables that another program has dropped or replaced. The feed then creates them again, without
        their earlier rows. Only for a feed whose checkpoint was moved by a user, who accepts this."""
        for uuid, identifier in self.known:
            found = self._lake.load(identifier)
            if found is None or str(found.metadata.table_uuid) != uuid:
                self.known.forget(uuid)

    def _place_of(self, uuid: str, identifier: Identifier) -> Identifier:
        """The name that the DDL in progress has given to the table with the id `uuid`, which had the name `identifier`.
        Raises FeedFailed if no table of the DDL has this id."""
        names: list[Identifier] = []
        if self.moving:
            names = [*self.moving, *self._lake.names(identifier[:-1], set_aside_prefix(identifier)[-1])]
        for name in names:
            found = self._lake.load(name)
            if found is not None and str(found.metadata.table_uuid) == uuid:
                return name
        raise gone(self._lake.named(identifier))
