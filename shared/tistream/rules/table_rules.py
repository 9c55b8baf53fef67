"""Table rules: lists of `database.table` patterns. The last rule that matches a table decides. Pure.

This is the table filter of TiDB's tools. `!` in front of a rule excludes what it matches. A table that no rule matches
is excluded. Blank lines and lines that begin with `#` are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tistream.arrays import Bools
from tistream.errors import InvalidRequest
from tistream.rules.pattern import Pattern, parse_part
from tistream.schema.visible import Name

RULES_MAX = 4_096
RULE_CHARS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class TableRule:
    """One rule: its patterns, and whether it includes what they match. `text` is the rule as the user wrote it."""

    text: str
    includes: bool
    database: Pattern
    table: Pattern


@dataclass(frozen=True, slots=True)
class TableRules:
    """Rules that include or exclude tables, in the order in which they were written. Of the rules that match a table
    the last one decides. A table that no rule matches is excluded."""

    rules: tuple[TableRule, ...]

    @classmethod
    def parse(cls, texts: Sequence[str], *, case_sensitive: bool = False) -> TableRules:
        """Parse rules. Unless `case_sensitive`, upper and lower case are the same. Raises InvalidRequest, which names
        the rule."""
        if len(texts) > RULES_MAX:
            raise InvalidRequest(f"{len(texts)} rules: at most {RULES_MAX} are accepted; use wildcards")
        found = (_rule(text, folded=not case_sensitive) for text in texts)
        return cls(tuple(rule for rule in found if rule is not None))

    def matches(self, database: str, table: str) -> bool:
        """Whether the rules include the table."""
        return bool(self.chosen([(database, table)])[0])

    def chosen(self, names: Sequence[Name]) -> Bools:
        """For each (database, table), whether the rules include it."""
        out = np.zeros(len(names), dtype=bool)
        for rule, found in zip(self.rules, self._each(names), strict=True):
            out[found] = rule.includes
        return out

    @property
    def literals(self) -> list[Name]:
        """The (database, table), in lower case unless the rules are case-sensitive, that rules without wildcards
        name."""
        return [
            (rule.database.literal, rule.table.literal)
            for rule in self.rules
            if rule.database.literal is not None and rule.table.literal is not None
        ]

    def matches_schema(self, database: str) -> bool:
        """Whether the rules include any table that the database may have. A rule that excludes only some of its tables
        does not exclude the database; one that excludes `database.*` does."""
        for rule in reversed(self.rules):
            if rule.database.matches([database])[0] and (rule.includes or rule.table.everything):
                return rule.includes
        return False

    def unused(self, names: Sequence[Name]) -> list[str]:
        """The rules that match no table of `names`."""
        return [
            rule.text
            for rule, found in zip(self.rules, self._each(names), strict=True)
            if not (len(names) and found.any())
        ]

    def _each(self, names: Sequence[Name]) -> list[Bools]:
        """For each rule, which of `names` it matches."""
        databases, tables = [name for name, _ in names], [name for _, name in names]
        return [rule.database.matches(databases) & rule.table.matches(tables) for rule in self.rules]


def _rule(text: str, *, folded: bool) -> TableRule | None:
    shown = text.strip()
    if not shown or shown.startswith("#"):
        return None
    if len(shown) > RULE_CHARS_MAX:
        raise InvalidRequest(f"rule {shown[:40]!r}… has {len(shown)} characters: at most {RULE_CHARS_MAX} are accepted")
    if shown.startswith("@"):
        raise InvalidRequest(f"rule {shown!r} names a file of the server: write the rules of that file here")
    includes = not shown.startswith("!")
    try:
        database, rest = parse_part(shown[0 if includes else 1 :], folded=folded, dotted=True)
        if not rest.startswith("."):
            raise InvalidRequest("a dot must stand between database and table, for example shop.*")
        table, rest = parse_part(rest[1:], folded=folded)
        if rest:
            raise InvalidRequest(f"{rest!r} follows the pattern of the table: remove it or quote the name")
    except InvalidRequest as error:
        raise InvalidRequest(f"rule {shown!r}: {error}") from None
    return TableRule(shown, includes, database, table)
