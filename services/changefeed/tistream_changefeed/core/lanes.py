"""What a shard sends now: the events of the tables that go on (Ahead), or those of tables that had stopped and catch up
(Behind). Pure.

Behind sends what lies between the position of each such table and that of the shard. Then the tables go on with the
others. A table whose event cannot be sent stops, again or for the first time, in both lanes alike. A DDL waits for
every table that it concerns, so each of these stops before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tistream.read.cursor import Position
from tistream.read.events import Events
from tistream.schema.visible import Name
from tistream_changefeed.core.outgoing import Outgoing, Sent
from tistream_changefeed.core.shard import Shard, Transaction
from tistream_changefeed.core.stopped import StoppedTable, behind, following


class Lane(Protocol):
    """What is common to Ahead and Behind. Positions are those of the pool. `resolves`: resolved messages follow its
    rows."""

    @property
    def resolves(self) -> bool: ...

    def rows(self, events: Events) -> Events:
        """The row events that are sent."""

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Whether this lane sends a DDL that concerns the tables `names`. `end`: the position after the DDL."""

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """The stopped table for which a DDL that concerns the tables `names` waits, or None."""

    def send(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """Return the transaction of a window, as Shard.send does."""

    def passed(self, until: Position) -> None:
        """Go on behind `until`: nothing before it is left to be sent."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The lane of all tables that are neither stopped nor catching up."""

    shard: Shard
    resolves: bool = True

    def rows(self, events: Events) -> Events:
        """The events of all tables but the stopped ones."""
        stopped = [(one, one.end) for one in self.shard.stopped]
        return events.chosen(np.flatnonzero(~following(events, stopped))) if stopped else events

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Implement Lane.sends_ddl: every DDL that the feed sends and that lies after the shard's position."""
        return bool(names) and end > self.shard.at

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """Implement Lane.waits_for: a stopped table that the DDL concerns. DDLs do not wait for a table that a
        user has left behind."""
        return _touched([one for one in self.shard.stopped if not one.left], names, end)

    def send(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """Return the transaction of a window, as Shard.send does."""
        return self.shard.send(rows, events, marks, until, skipped)

    def passed(self, until: Position) -> None:
        """Move the shard's position to `until`, as Shard.skip does."""
        self.shard.skip(until)


@dataclass(frozen=True, slots=True)
class Behind:
    """The lane of the tables that catch up with the shard. It sends no resolved messages: they follow once the tables
    have reached the shard's position."""

    shard: Shard
    resolves: bool = False

    def rows(self, events: Events) -> Events:
        """The events of the tables that catch up, up to the shard's position."""
        lacking = [(one, one.at) for one in self.shard.catching]
        ended = [(one, one.end) for one in self.shard.stopped if one.left or one.limit is not None]
        mine = following(events, lacking) & ~following(events, ended) & ~behind(events, self.shard.at)
        return events.chosen(np.flatnonzero(mine))

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Implement Lane.sends_ddl: a DDL before the shard's position that has waited for a table that catches up."""
        return end <= self.shard.at and _touched(self.shard.catching, names, end) is not None

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """Implement Lane.waits_for: a table that has stopped again while it caught up."""
        return _touched([one for one in self.shard.stopped if one.limit is not None and not one.left], names, end)

    def send(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """The transaction of a window; the shard stays where it is."""
        return self.shard.catch_up(rows, events, marks, until, skipped)

    def passed(self, until: Position) -> None:
        """Move the positions of the tables that catch up; the shard's own stays."""
        self.shard.passed(until)


def _touched(tables: Sequence[StoppedTable], names: Sequence[Name], end: Position) -> StoppedTable | None:
    return next((one for one in tables if end > one.at and any(map(one.touches, names))), None)
