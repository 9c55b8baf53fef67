"""The events in messages of a topic: rows, DDLs, and the resolved ts of a partition. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

Value = int | float | str | bytes | None
Row = Mapping[str, Value]
"""The values of a row by column, in the order of the message."""


class Malformed(ValueError):
    """A message does not have the form that its protocol prescribes. The text says what was expected."""


class ValueKind(IntEnum):
    """The kinds of a column's values, which decide how they must be converted before they are written to another
    system."""

    PLAIN = 0  # the value as it is
    NUMBER_OF_NAME = 1  # an ENUM or SET as a number: the protocol does not carry the elements' names
    BITS = 2
    WIDE = 3  # a BIGINT, which some JSON readers would round
    JSON = 4


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A change of one row. An insert has no `old` row, a delete no `new` one.

    `key` has the names of the columns of the handle key: the primary key, or the unique key that the message marks
    instead. It is empty if the table has no such key. `kinds` has an entry for each column whose kind is not PLAIN.
    """

    commit_ts: int
    database: str
    table: str
    old: Row | None
    new: Row | None
    key: tuple[str, ...]
    kinds: Mapping[str, ValueKind]

    @property
    def name(self) -> tuple[str, str]:
        """The full name of the table: (database, table)."""
        return self.database, self.table


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A DDL statement, which changed the schema at `commit_ts`."""

    commit_ts: int
    database: str
    table: str
    query: str


@dataclass(frozen=True, slots=True)
class ResolvedEvent:
    """A promise of the producer: no row with a commit_ts at or below `ts` follows in this partition."""

    ts: int


@dataclass(frozen=True, slots=True)
class AdminEvent:
    """A change of the topic's number of partitions. Rows with a commit_ts above `ts` are spread over `partitions`
    partitions. Every partition has the event, after the resolved message for `ts`."""

    ts: int
    partitions: int


Event = RowEvent | DdlEvent | ResolvedEvent | AdminEvent
