"""Records the events of one tenant's stream, in 20 bytes per event, because every other pull must return the same
events.

Positions count row and DDL events from the record's start. Above `events_max`, the oldest events are dropped.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tistream_verify.ddl_effect import Name, names_of

_ANY = ""


@dataclass(frozen=True, slots=True)
class PullScope:
    """The scope of a pull: a tenant (PullTenant), a database (PullDB) or a table (PullTable). Names are compared
    without case."""

    database: str | None = None
    table: str | None = None

    def __str__(self) -> str:
        call = "PullTenant" if self.database is None else "PullDB" if self.table is None else "PullTable"
        return " ".join([call, ".".join(name for name in (self.database, self.table) if name is not None)]).strip()

    def covers(self, names: frozenset[Name]) -> bool:
        """Whether a pull of this scope includes an event that concerns the tables `names`, given in lower case."""
        if self.database is None:
            return True
        database = self.database.lower()
        if self.table is None:
            return any(name[0] == database for name in names)
        return (database, self.table.lower()) in names


def line_hash(line: bytes) -> int:
    """A 64-bit hash of an event's text. All pulls of a tenant return an event with the same bytes."""
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big")


class StreamRecord:
    """The row and DDL events of a stream, appended in its order: the commit_ts, the hash and the table names of each.
    `events_max`: above this number, the oldest quarter of the events is dropped. Not thread-safe: callers need a
    lock."""

    def __init__(self, start_ts: int, events_max: int = 4_000_000) -> None:
        self.resolved_ts = start_ts  # every event at or below it has been appended
        self._start_ts = start_ts
        self._events_max = events_max
        self._base = 0
        self._commit_ts = array("q")
        self._hash = array("Q")
        self._names_at = array("i")
        self._names: list[frozenset[Name]] = []
        self._number: dict[frozenset[Name], int] = {}
        # The same by the names that row events contain, so that they need not be converted to lower case.
        self._spelt: dict[Name, int] = {}

    @property
    def first(self) -> int:
        """The position of the oldest event that was not dropped."""
        return self._base

    @property
    def end(self) -> int:
        """The position of the next event."""
        return self._base + len(self._hash)

    def append(self, event: Mapping[str, Any], line: bytes) -> None:
        """Append the next row or DDL event. `event` is its parsed JSON, and `line` the same as text. Drops the oldest
        events if the record has too many."""
        if event["type"] == "row":
            spelt = event["database"], event["table"]
            number = self._spelt.get(spelt)
            if number is None:
                number = self._spelt[spelt] = self._numbered(frozenset({(spelt[0].lower(), spelt[1].lower())}))
        else:
            number = self._numbered(frozenset(names_of(event)))
        self._commit_ts.append(int(event["commit_ts"]))
        self._hash.append(line_hash(line))
        self._names_at.append(number)
        if len(self._hash) > self._events_max:
            gone = self._events_max // 4
            for column in (self._commit_ts, self._hash, self._names_at):
                del column[:gone]
            self._base += gone

    def _numbered(self, names: frozenset[Name]) -> int:
        number = self._number.setdefault(names, len(self._names))
        if number == len(self._names):
            self._names.append(names)
        return number

    def after(self, ts: int) -> int:
        """The position after the last event at or below `ts`."""
        return self._base + bisect_right(self._commit_ts, ts)

    def commit_ts(self, position: int) -> int:
        """The commit_ts of the event at a position in [first, end)."""
        return self._commit_ts[position - self._base]

    def hash(self, position: int) -> int:
        """The hash of the event at a position in [first, end)."""
        return self._hash[position - self._base]

    def whole_since(self, ts: int) -> bool:
        """Whether all events above `ts` are still in the record."""
        if self._base == 0:
            return ts >= self._start_ts
        return ts >= self._commit_ts[0]

    def hashes(self, scope: PullScope, low_ts: int, high_ts: int) -> list[int]:
        """Hashes of the events that a pull of `scope` over (low_ts, high_ts] must return, in order. Requires
        `whole_since(low_ts)`."""
        low, high = bisect_right(self._commit_ts, low_ts), bisect_right(self._commit_ts, high_ts)
        if scope.database is None:
            return self._hash[low:high].tolist()
        covered = [scope.covers(names) for names in self._names]
        numbers = self._names_at[low:high]
        return [self._hash[low + at] for at, number in enumerate(numbers) if covered[number]]

    def names_between(self, low: int, high: int) -> list[Name]:
        """The table names of the events at the positions [low, high), sorted."""
        numbers = set(self._names_at[max(0, low - self._base) : max(0, high - self._base)])
        return sorted({name for number in numbers for name in self._names[number] if name[1] != _ANY})


def difference(expected: Sequence[int], got: Sequence[int]) -> str | None:
    """Describe the first difference between two sequences of hashes; None if they are equal."""
    if list(expected) == list(got):
        return None
    for at, (one, other) in enumerate(zip(expected, got, strict=False)):
        if one != other:
            return f"event {at} of {len(expected)} differs ({len(got)} were received)"
    return f"{len(got)} events were received, {len(expected)} expected"
