"""Looks after the tables that a feed has created: another program may drop or replace them, or roll them back."""

from __future__ import annotations

from collections.abc import Sequence

from tistream_changefeed.sinks.iceberg.kept.known_tables import KnownTables
from tistream_changefeed.sinks.iceberg.lake import Lake, gone
from tistream_changefeed.sinks.iceberg.marks import Newest
from tistream_changefeed.sinks.iceberg.target import Identifier, set_aside_prefix


class CreatedTables:
    """The tables that a feed has created. `known` has their ids. `moving`: the old and new names of the tables that an
    unfinished DDL may rename; empty without such a DDL. Every call may raise FeedFailed."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.known = KnownTables({}, "")
        self.moving: Sequence[Identifier] = ()

    def check(self, identifier: Identifier, uuid: str | None) -> None:
        """Check that the table which the feed has created under a name is still there, or was renamed by the DDL that a
        worker has begun. `uuid`: the id of the table that is there; None if no table is."""
        for lost in self.known.at(identifier) - {uuid}:
            place = self._place_of(lost, identifier)
            if place in self.moving:
                self.known.put(lost, place)
            else:
                self.known.forget(lost)
        if uuid is not None:
            self.known.put(uuid, identifier)

    def shows_newest(self, uuid: str, newest: Newest | None) -> bool:
        """Whether a table shows the newest commit of the feed. `newest` is what the table itself says of it."""
        known = self.known.newest(uuid)
        return not known if newest is None else newest.current and newest.sequence >= known

    def accept_gone(self) -> None:
        """Forget the tables that are not there any more, so that the feed may create them again, without their earlier
        rows. A person has ordered this by moving the feed's checkpoint."""
        for uuid, identifier in self.known:
            found = self._lake.load(identifier)
            if found is None or str(found.metadata.table_uuid) != uuid:
                self.known.forget(uuid)

    def _place_of(self, uuid: str, identifier: Identifier) -> Identifier:
        """The name that a DDL has given to a table which had the name `identifier`. Raises FeedFailed if no DDL has."""
        names: list[Identifier] = []
        if self.moving:
            names = [*self.moving, *self._lake.names(identifier[:-1], set_aside_prefix(identifier)[-1])]
        for name in names:
            found = self._lake.load(name)
            if found is not None and str(found.metadata.table_uuid) == uuid:
                return name
        raise gone(self._lake.named(identifier))
