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
    """One of both. Positions are those of the pool. `resolves`: resolved messages follow its rows."""

    @property
    def resolves(self) -> bool: ...

    def rows(self, events: Events) -> Events:
        """The row events that are sent."""

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Whether a DDL that concerns these tables, with this position after it, is this lane's."""

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """The stopped table for which such a DDL waits, or None."""

    def send(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """As of Shard."""

    def passed(self, until: Position) -> None:
        """Go on behind `until`: nothing before it is left to be sent."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The tables that go on."""

    shard: Shard
    resolves: bool = True

    def rows(self, events: Events) -> Events:
        """All but those of stopped tables."""
        stopped = [(one, one.end) for one in self.shard.stopped]
        return events.chosen(np.flatnonzero(~following(events, stopped))) if stopped else events

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Every one that the feed sends."""
        return bool(names) and end > self.shard.at

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """A stopped table that the others wait for."""
        return _touched([one for one in self.shard.stopped if not one.left], names, end)

    def send(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """As of Shard."""
        return self.shard.send(rows, events, marks, until, skipped)

    def passed(self, until: Position) -> None:
        """As Shard.skip."""
        self.shard.skip(until)


@dataclass(frozen=True, slots=True)
class Behind:
    """The tables that catch up. A resolved message follows when they are where the shard is."""

    shard: Shard
    resolves: bool = False

    def rows(self, events: Events) -> Events:
        """Those of tables that catch up, up to where the shard is."""
        lacking = [(one, one.at) for one in self.shard.catching]
        ended = [(one, one.end) for one in self.shard.stopped if one.left or one.limit is not None]
        mine = following(events, lacking) & ~following(events, ended) & ~behind(events, self.shard.at)
        return events.chosen(np.flatnonzero(mine))

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """One that had waited for a table that catches up."""
        return end <= self.shard.at and _touched(self.shard.catching, names, end) is not None

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """A table that has stopped again."""
        return _touched([one for one in self.shard.stopped if one.limit is not None and not one.left], names, end)

    def send(
        self, rows: Outgoing, events: int, marks: tuple[Sent, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """The transaction of a window; the shard stays where it is."""
        return self.shard.catch_up(rows, events, marks, until, skipped)

    def passed(self, until: Position) -> None:
        """Move the tables alone."""
        self.shard.passed(until)


def _touched(tables: Sequence[StoppedTable], names: Sequence[Name], end: Position) -> StoppedTable | None:
    return next((one for one in tables if end > one.at and any(map(one.touches, names))), None)
