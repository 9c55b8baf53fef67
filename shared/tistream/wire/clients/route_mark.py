"""Compares the age of route tables. Pure.

A table has two numbers: the owner_rev, which grows each time that an owner is elected among the meta servers, and a
version, which grows with each table, across elections too. A process that has seen a table accepts no older one, so
tables of an owner that does not know that it was replaced are ignored. If a later owner's table has a lower version,
the meta database was restored to an earlier time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class RouteMark:
    """Identifies a state of the route table: the election number of the owner that made it, then its version. A newer
    state has a higher mark."""

    owner_rev: int
    version: int

    def max_with(self, other: RouteMark) -> RouteMark:
        """The higher owner_rev of both, and the higher version of both."""
        return RouteMark(max(self.owner_rev, other.owner_rev), max(self.version, other.version))


NOTHING_SEEN = RouteMark(0, -1)
