"""Tables of a feed that have stopped, while the others go on (docs/changefeeds.md, "Changing a feed"). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tistream.arrays import Bools
from tistream.read.cursor import Place, Position
from tistream.read.events import Events, Rows
from tistream.schema.visible import Name, fold
from tistream.wire.bulk.changefeeds import HeldBy, HeldStage, StoppedTableInfo

STOPPED_MAX = 100  # of a feed; with more, the feed fails


@dataclass(frozen=True, slots=True)
class StoppedTable:
    """A table that has stopped. With an empty table name it stands for all tables of its database, because a DDL of the
    database waits. All events of the table at or before `at` are in the sink.

    `left`: the user has chosen to leave it behind, so DDLs and the checkpoint do not wait for it. `limit`: if the table
    has stopped since the sink was opened, or in a feed with several shards since the feed was changed, the position
    after which nothing of it is sent. None: it had stopped before, and is being retried. `stage`: where its event was
    refused.
    """

    name: Name
    at: Position
    reason: str
    left: bool = False
    limit: Position | None = None
    stage: HeldStage = "encode"

    def touches(self, name: Name) -> bool:
        """Whether a name is this table's, or one of the two names is a database that contains the other."""
        (database, table), (other_database, other_table) = self.name, name
        if fold(database) != fold(other_database):
            return False
        return not table or not other_table or fold(table) == fold(other_table)

    def covers(self, name: Name) -> bool:
        """Whether all tables that `name` stands for are this table, or in this database."""
        return self.touches(name) and (not self.name[1] or bool(name[1]))

    @property
    def end(self) -> Position:
        """The position after which the main lane sends no event of the table. The lane that catches up sends later ones
        if `limit` is None and the table is not `left`."""
        return self.at if self.limit is None else self.limit

    @property
    def lacks(self) -> bool:
        """Whether events of the table are missing in the sink and can be sent now, so that it catches up."""
        return (not self.left) if self.limit is None else self.at < self.limit

    def caught_up(self, until: Position) -> StoppedTable:
        """Return the table as it is after its events up to `until` were sent, but none after its `end`."""
        if not self.lacks:
            return self
        return replace(self, at=max(self.at, until if self.limit is None else min(until, self.limit)))

    @property
    def info(self) -> StoppedTableInfo:
        """Convert the table to an entry of a worker's report."""
        database, table = self.name
        return StoppedTableInfo(
            database=database, table=table, checkpoint_ts=str(self.at.low_ts), reason=self.reason, left=self.left
        )

    @property
    def held_by(self) -> HeldBy:
        """Convert the table to an entry of `held_by` in a status."""
        return HeldBy(
            stage=self.stage, object=".".join(self.name) if self.name[1] else self.name[0], reason=self.reason
        )


def following(events: Events, tables: Iterable[tuple[StoppedTable, Position]]) -> Bools:
    """For each event, whether it belongs to one of these tables and lies after the position that is paired with the
    table."""
    found = np.zeros(len(events), bool)
    for table, at in tables:
        for number, one in enumerate(events.sets):
            if isinstance(one, Rows) and table.touches(one.version.name):
                found |= (events.source == number) & behind(events, at)
    return found


def behind(events: Events, at: Position) -> Bools:
    """For each event, whether it lies after the position `at`."""
    found: Bools = events.commit_ts > at.commit_ts
    if at.place is not Place.DONE:
        for index in np.flatnonzero(events.commit_ts == at.commit_ts).tolist():
            found[index] = events.position(index) > at
    return found


def replaced(tables: Iterable[StoppedTable], one: StoppedTable) -> tuple[StoppedTable, ...]:
    """Return the tables with `one` added. It replaces a table of the same name."""
    name = tuple(map(fold, one.name))
    return (*(table for table in tables if tuple(map(fold, table.name)) != name), one)
