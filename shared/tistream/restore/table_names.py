"""Names of what a restore or an undo covers: one table, the tables of one database, or all tables of a tenant.

shop.orders        one table
shop, shop.*       the tables of a database
*, *.*             all tables
`a.b`.`c``d`       names with other characters, in backticks as in SQL
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.visible import SYSTEM_SCHEMAS, fold

_PART = r"(?:`(?:[^`]|``)+`|[^`.*\s]+)"
_FORM = re.compile(rf"({_PART}|\*)(?:\.({_PART}|\*))?")
_PLAIN = re.compile(r"[^`.*\s]+")
SHOWN_MAX = 80


@dataclass(frozen=True, slots=True)
class TableNames:
    """One or several tables, by name. `database` None stands for every database, `table` None for every table of the
    database."""

    database: str | None = None
    table: str | None = None

    def covers(self, other: TableNames) -> bool:
        """Whether this name covers all tables of `other`. Names are compared as TiDB compares them."""
        return _covers(self.database, other.database) and _covers(self.table, other.table)

    def __str__(self) -> str:
        return "*" if self.database is None else f"{_shown(self.database)}.{_shown(self.table)}"


def parse_names(text: str) -> TableNames:
    """Parse a name in one of the forms that the module's docstring lists. Raises ValueError if the text has none of
    these forms, or names a system schema."""
    found = _FORM.fullmatch(text)
    if found is None or (found[1] == "*" and found[2] not in (None, "*")):
        raise ValueError(f"{text[:SHOWN_MAX]!r} is not a name: write shop.orders, shop.*, or `a.b`.`c` with backticks")
    database, table = (_name(part) for part in found.groups())
    if database is not None and fold(database) in SYSTEM_SCHEMAS:
        raise ValueError(f"{text[:SHOWN_MAX]!r} is in a system schema, which has no restores")
    return TableNames(database, table)


def distinct(names: Iterable[TableNames]) -> list[TableNames]:
    """Remove the names whose tables another name covers too, so that no table is covered twice."""
    kept: list[TableNames] = []
    for one in names:
        if any(other.covers(one) for other in kept):
            continue
        kept = [other for other in kept if not one.covers(other)] + [one]
    return kept


def _name(part: str | None) -> str | None:
    if part is None or part == "*":
        return None
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def _covers(own: str | None, other: str | None) -> bool:
    return own is None or (other is not None and fold(own) == fold(other))


def _shown(name: str | None) -> str:
    if name is None:
        return "*"
    return name if _PLAIN.fullmatch(name) else quoted_name(name)
