"""The age of a route table. Pure.

A table carries its owner's owner_rev, which grows at each election, and a version, which grows with each table. A
process that has seen a table accepts no older one, so an owner that has been replaced without noticing has no effect.
The version grows across elections too. A later owner's table with a lower version is made from a meta database that was
restored to an earlier time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """The age of a table: the owner's election number, then the version. Ordered by age."""

    owner_rev: int
    version: int

    def joined(self, other: Mark) -> Mark:
        """The higher owner_rev and the higher version of both."""
        return Mark(max(self.owner_rev, other.owner_rev), max(self.version, other.version))


NOTHING_SEEN = Mark(0, -1)
