"""The windows of events that a feed has committed, as they are stored with its progress, and their comparison with what
a sink holds. Pure.

A window is stored as the JSON list `[after_ts, until_ts, late, [[database, table, events, sum, xor], …]]`; timestamps
are texts, sum and xor hexadecimal digits. If a window has events of more than TABLES_MAX tables, those of the others
are added up under the empty name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tistream.arrays import Int64s, UInt64s
from tistream.schema.visible import Name
from tistream_changefeed.fingerprints.fingerprint import Fingerprint, Fingerprints, by_table, summed

TABLES_MAX = 100
KEPT_WINDOWS, KEPT_TABLES = 100, 400
OTHERS: Name = ("", "")


@dataclass(frozen=True, slots=True)
class SentWindow:
    """The fingerprints of the events that one commit of a sink has made durable, all with `after_ts` < commit_ts <=
    `until_ts`. Several windows may have parts of one commit_ts. `late`: the events are those of tables that had
    stopped, and others of this range were committed before."""

    after_ts: int
    until_ts: int
    tables: Fingerprints = field(default_factory=dict)
    late: bool = False

    def members(self) -> list[Any]:
        """The window as the JSON list that the module describes."""
        named = {name: self.tables[name] for name in sorted(self.tables.keys() - {OTHERS})[:TABLES_MAX]}
        others = summed({OTHERS: one} for name, one in self.tables.items() if name not in named)
        tables = [
            [*name, one.events, f"{one.total:016x}", f"{one.xor:016x}"] for name, one in {**named, **others}.items()
        ]
        return [str(self.after_ts), str(self.until_ts), int(self.late), tables]


def parse(members: Sequence[Any]) -> SentWindow:
    """Parse a window from the JSON list that SentWindow.members returned. Raises ValueError or TypeError for other
    JSON."""
    after_ts, until_ts, late, tables = members
    found = {
        (str(database), str(table)): Fingerprint(int(events), int(total, 16), int(xor, 16))
        for database, table, events, total, xor in tables
    }
    return SentWindow(int(after_ts), int(until_ts), found, bool(late))


def newest(windows: Sequence[SentWindow]) -> list[SentWindow]:
    """Select the windows to keep in a sink that stores all of them in one place: the newest ones, at most KEPT_WINDOWS,
    with at most KEPT_TABLES tables in all, but at least one."""
    tables = np.cumsum([min(len(one.tables), TABLES_MAX + 1) for one in reversed(windows)])
    count = min(KEPT_WINDOWS, max(1, int(np.searchsorted(tables, KEPT_TABLES, side="right"))))
    return list(windows[-count:])


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """The events that were found in a sink, in any order. `table`: for each, the index of its table in `names`."""

    names: Sequence[Name]
    commit_ts: Int64s
    table: Int64s
    hashes: UInt64s

    def in_order(self) -> FoundEvents:
        """The same events, sorted by commit_ts."""
        order = np.argsort(self.commit_ts, kind="stable")
        return FoundEvents(self.names, self.commit_ts[order], self.table[order], self.hashes[order])


@dataclass(slots=True)
class FoundParts:
    """Collects events that are found in a sink, one table at a time."""

    _names: dict[Name, int] = field(default_factory=dict)
    _parts: list[tuple[Int64s, Int64s, UInt64s]] = field(default_factory=list)

    def add(self, name: Name, commit_ts: Int64s, hashes: UInt64s) -> None:
        """Add events of the table `name`: the commit_ts and the hash of each."""
        number = self._names.setdefault(name, len(self._names))
        self._parts.append((commit_ts, np.full(len(commit_ts), number, np.int64), hashes))

    def events(self) -> FoundEvents:
        """All events that were added."""
        none = np.empty(0, np.int64)
        parts = [(none, none, np.empty(0, np.uint64)), *self._parts]
        commit_ts, table, hashes = (np.concatenate([one[at] for one in parts]) for at in range(3))
        return FoundEvents(tuple(self._names), commit_ts, table, hashes)


@dataclass(frozen=True, slots=True)
class WindowDifference:
    """A table whose events of a window are not those that were committed to the sink. `sent`: what was committed;
    `found`: what the sink holds. The name is empty if the events of several tables were added up."""

    after_ts: int
    until_ts: int
    name: Name
    sent: Fingerprint
    found: Fingerprint


@dataclass(frozen=True, slots=True)
class ComparedWindows:
    """How many windows were compared, and what differs. `late`: the tables of late windows that were left out, and with
    them the windows that they overlap."""

    count: int = 0
    differences: tuple[WindowDifference, ...] = ()
    late: frozenset[Name] = frozenset()

    def __add__(self, other: ComparedWindows) -> ComparedWindows:
        return ComparedWindows(self.count + other.count, self.differences + other.differences, self.late | other.late)


def compared(
    windows: Sequence[SentWindow], found: FoundEvents, from_ts: int, to_ts: int, only: Name | None = None
) -> ComparedWindows:
    """Compare the windows that lie in (`from_ts`, `to_ts`] with the events that were found in this range.
    `windows`: those whose records still exist, in the order in which they were committed. `only`: the one table of
    which events were looked for; None: all. Windows whose ranges overlap are compared together. Left out are the
    first of `windows` with those that it overlaps, and windows that overlap a range of which records are gone. With
    `only`, windows with more than TABLES_MAX tables are left out, too, because some of their tables were added
    up."""
    found, count, differences = found.in_order(), 0, []
    oldest = windows[0] if windows else None
    for group in _groups(windows):
        after_ts, until_ts = group[0].after_ts, max(one.until_ts for one in group)
        inside = from_ts <= after_ts and until_ts <= to_ts
        if not inside or any(one is oldest for one in group) or not _covered(group):
            continue
        start, end = np.searchsorted(found.commit_ts, [after_ts, until_ts], side="right").tolist()
        there: Mapping[Name, Fingerprint] = by_table(found.hashes[start:end], found.table[start:end], found.names)
        sent: Mapping[Name, Fingerprint] = summed(one.tables for one in group)
        if OTHERS in sent:
            if only is not None:
                continue
            sent, there = _together(sent), _together(there)
        names = {*sent, *there} if only is None else {only}
        count += len(group)
        for name in sorted(names):
            one, other = sent.get(name, Fingerprint()), there.get(name, Fingerprint())
            if one != other:
                differences.append(WindowDifference(after_ts, until_ts, name, one, other))
    return ComparedWindows(count, tuple(differences))


def _together(tables: Fingerprints) -> Fingerprints:
    return {OTHERS: sum(tables.values(), Fingerprint())}


def _groups(windows: Sequence[SentWindow]) -> Iterator[list[SentWindow]]:
    """Yield groups of windows whose ranges overlap, in the order of ts. Windows with an empty range are left out,
    because they have no events."""
    group: list[SentWindow] = []
    end = -1
    for one in sorted((one for one in windows if one.after_ts < one.until_ts), key=lambda one: one.after_ts):
        if group and one.after_ts >= end:
            yield group
            group = []
        group.append(one)
        end = max(end, one.until_ts) if len(group) > 1 else one.until_ts
    if group:
        yield group


def _covered(group: Sequence[SentWindow]) -> bool:
    """Whether the windows that are not late cover the whole range, so that the record of none of them is gone."""
    end = group[0].after_ts
    for one in group:
        if not one.late:
            if one.after_ts > end:
                return False
            end = max(end, one.until_ts)
    return end == max(one.until_ts for one in group)
