"""Finds the tables of a backfill: those of a schema at one ts that match the patterns in the request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from tistream.errors import InvalidRequest
from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import record_span
from tistream.schema.visible import TableVersion, fold

PATTERNS_MAX = 1_000
EVERY = ("*", "*")
NEAR_MAX = 3


@dataclass(frozen=True, slots=True)
class RequestedTable:
    """A table of a backfill, with the physical ids of its rows: those of its partitions, or its own."""

    database: str
    table: str
    physical_ids: tuple[int, ...]

    @property
    def spans(self) -> list[KeySpan]:
        """The spans of the table's record keys, one for each physical id."""
        return [record_span(one) for one in self.physical_ids]


def parse_patterns(patterns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse patterns `database.table`, in which `*` and `?` are wildcards, to pairs of folded names. The first point
    separates the two; a point in the name of a database must be written as a wildcard. Raises InvalidRequest."""
    if not 0 < len(patterns) <= PATTERNS_MAX:
        raise InvalidRequest(f"`tables` has {len(patterns)} patterns; between 1 and {PATTERNS_MAX} are accepted")
    out = []
    for pattern in patterns:
        database, point, table = pattern.partition(".")
        if not (database and point and table) or "[" in pattern:
            raise InvalidRequest(f"`tables`: {pattern[:200]!r} is not of the form database.table, as in shop.*")
        out.append((fold(database), fold(table)))
    return tuple(out)


def requested_tables(patterns: Sequence[str], visible: Iterable[TableVersion]) -> list[RequestedTable]:
    """The base tables that match any pattern, in the order of `visible`. Raises InvalidRequest for a malformed pattern,
    and for one other than `*.*` that matches no table; its text has the pattern and similar names."""
    wanted = parse_patterns(patterns)
    found = []
    matched: set[tuple[str, str]] = set()
    names: dict[str, str] = {}  # folded -> as it is shown
    for version in visible:
        if version.head.kind != "table":
            continue
        database, table = version.folded
        names[f"{database}.{table}"] = f"{version.database}.{version.head.name}"
        hits = {one for one in wanted if fnmatchcase(database, one[0]) and fnmatchcase(table, one[1])}
        if hits:
            matched |= hits
            found.append(RequestedTable(version.database, version.head.name, version.head.physical_ids))
    for text, pattern in zip(patterns, wanted, strict=True):
        if pattern not in matched and pattern != EVERY:
            near = [names[one] for one in get_close_matches(".".join(pattern), sorted(names), NEAR_MAX)]
            hint = f"there are {', '.join(near)}" if near else "no name is like it"
            raise InvalidRequest(f"no table of the backup matches {text[:200]!r}: {hint}")
    return found
