"""What messages of a topic say: rows, DDLs, and how far a partition is complete. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

Value = int | float | str | bytes | None
Row = Mapping[str, Value]
"""The values of a row by column, in the order of the message."""


class Malformed(ValueError):
    """A message that is not of its protocol. The text says what was expected."""


class ValueKind(IntEnum):
    """How a value must be written into another system."""

    PLAIN = 0  # as it is
    NUMBER_OF_NAME = 1  # of an ENUM or SET: the number stands for names, which the protocol does not say
    BITS = 2
    WIDE = 3  # BIGINT, which not every JSON reader can hold
    JSON = 4


@dataclass(frozen=True, slots=True)
class RowEvent:
    """One row changed. An insert has no `old` row, a delete no `new` one.

    `key` names the columns of the handle key, in the order of the message; empty: the table has none. `kinds` has an
    entry for each column that is not PLAIN.
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
        """(database, table)."""
        return self.database, self.table


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A statement changed the schema at `commit_ts`."""

    commit_ts: int
    database: str
    table: str
    query: str


@dataclass(frozen=True, slots=True)
class ResolvedEvent:
    """No row with a commit_ts at or below `ts` follows in the partition."""

    ts: int


Event = RowEvent | DdlEvent | ResolvedEvent
