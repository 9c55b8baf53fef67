"""Divides the events of a shard, the part of a feed that one worker writes, into two lanes. The main lane sends the
events of all tables that have not stopped. The catch-up lane sends those of stopped tables that catch up. Pure.

For each stopped table, the catch-up lane sends the events between the table's position and the shard's. Then the table
continues in the main lane. In both lanes a table stops if one of its events cannot be sent. A DDL waits for every table
that it concerns, so each of these tables stops before the DDL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tistream.read.cursor import Position
from tistream.read.events import Events
from tistream.schema.visible import Name
from tistream_changefeed.core.outgoing import NOTHING, Mark, Payload
from tistream_changefeed.core.shard import Shard, Transaction
from tistream_changefeed.core.stopped import StoppedTable, behind, following


class Lane(Protocol):
    """One of the two lanes of a shard. A position is a place in the order of the tenant's committed rows. `resolves`:
    whether the lane sends resolved messages, each of which promises that all events at or below its ts were sent."""

    @property
    def resolves(self) -> bool: ...

    def rows(self, events: Events) -> Events:
        """The row events of `events` that this lane sends."""

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Whether this lane sends a DDL that concerns the tables `names`. `end` is the position after the DDL."""

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """The stopped table for which a DDL that concerns the tables `names` must wait; None if the DDL can be sent.
        `end` is the position after the DDL."""

    def send(
        self, rows: Payload, events: int, marks: tuple[Mark, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """Make the transaction for one window of messages, as Shard.send does, and move the lane's position to
        `until`."""

    def send_ddl(self, marks: tuple[Mark, ...], until: Position, skipped: int) -> Transaction:
        """Make the transaction with this shard's copies of a DDL, in a feed with several shards, and move the lane's
        position to `until`, the position after the DDL."""

    def passed(self, until: Position) -> None:
        """Move the lane's position to `until`, because it has sent everything up to there."""

    def adopt(self, other: StoppedTable, at: Position) -> list[Name]:
        """Stop what `other`, which has stopped in another shard, stands for, if the lane sends it. `at`: the position
        where the shards meet, or up to which this shard has sent its events. Returns the names of the tables that
        stop."""


@dataclass(frozen=True, slots=True)
class MainLane:
    """The lane of all tables that are neither stopped nor catching up."""

    shard: Shard
    resolves: bool = True

    def rows(self, events: Events) -> Events:
        """Implement Lane.rows: the events of all tables except the stopped ones."""
        stopped = [(one, one.end) for one in self.shard.stopped]
        return events.chosen(np.flatnonzero(~following(events, stopped))) if stopped else events

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Implement Lane.sends_ddl: True for every DDL that the feed sends and that lies after the shard's position."""
        return bool(names) and end > self.shard.at

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """Implement Lane.waits_for: a stopped table that the DDL concerns. DDLs do not wait for a stopped table that
        the user has chosen to leave behind."""
        return _touched([one for one in self.shard.stopped if not one.left], names, end)

    def send(
        self, rows: Payload, events: int, marks: tuple[Mark, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """Implement Lane.send: make the transaction, and move the shard's position."""
        return self.shard.send(rows, events, marks, until, skipped)

    def send_ddl(self, marks: tuple[Mark, ...], until: Position, skipped: int) -> Transaction:
        """Implement Lane.send_ddl: the rows that follow wait until every shard has sent the DDL."""
        return self.shard.send_ddl(marks, until, skipped)

    def passed(self, until: Position) -> None:
        """Implement Lane.passed: move the shard's position to `until`, as Shard.skip does."""
        self.shard.skip(until)

    def adopt(self, other: StoppedTable, at: Position) -> list[Name]:
        """Implement Lane.adopt: stop the table after `at`, unless it has stopped here."""
        if any(one.covers(other.name) for one in self.shard.stopped):
            return []
        self.shard.adopt(other.name, at, other)
        return [other.name]


@dataclass(frozen=True, slots=True)
class CatchUpLane:
    """The lane of the tables that catch up with the shard. It sends no resolved messages: they follow once the tables
    have reached the shard's position."""

    shard: Shard
    resolves: bool = False

    def rows(self, events: Events) -> Events:
        """Implement Lane.rows: the events of the tables that catch up, up to the shard's position."""
        lacking = [(one, one.at) for one in self.shard.catching]
        ended = [(one, one.end) for one in self.shard.stopped if one.left or one.limit is not None]
        mine = following(events, lacking) & ~following(events, ended) & ~behind(events, self.shard.at)
        return events.chosen(np.flatnonzero(mine))

    def sends_ddl(self, names: Sequence[Name], end: Position) -> bool:
        """Implement Lane.sends_ddl: True for a DDL before the shard's position that has waited for a table that catches
        up."""
        return end <= self.shard.at and _touched(self.shard.catching, names, end) is not None

    def waits_for(self, names: Sequence[Name], end: Position) -> StoppedTable | None:
        """Implement Lane.waits_for: a table that has stopped again while it caught up."""
        return _touched([one for one in self.shard.stopped if one.limit is not None and not one.left], names, end)

    def send(
        self, rows: Payload, events: int, marks: tuple[Mark, ...], until: Position, skipped: int = 0
    ) -> Transaction:
        """Implement Lane.send: make the transaction, and move the positions of the tables that catch up, not the
        shard's."""
        return self.shard.catch_up(rows, events, marks, until, skipped)

    def send_ddl(self, marks: tuple[Mark, ...], until: Position, skipped: int) -> Transaction:
        """Implement Lane.send_ddl: as `send`."""
        return self.shard.catch_up(NOTHING, 0, marks, until, skipped)

    def passed(self, until: Position) -> None:
        """Implement Lane.passed: move the positions of the tables that catch up, and not the shard's."""
        self.shard.passed(until)

    def adopt(self, other: StoppedTable, at: Position) -> list[Name]:  # noqa: ARG002
        """Implement Lane.adopt: stop those of the tables that catch up where they are. A table that the main lane
        sends stops at the main lane's next barrier."""
        found = [one for one in self.shard.catching if one.touches(other.name)]
        for one in found:
            self.shard.adopt(one.name, one.at, other)
        return [one.name for one in found]


def _touched(tables: Sequence[StoppedTable], names: Sequence[Name], end: Position) -> StoppedTable | None:
    return next((one for one in tables if end > one.at and any(map(one.touches, names))), None)
