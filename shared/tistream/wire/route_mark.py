"""How new a route table is. Pure.

An owner's tables carry its owner_rev, which grows at each election, and a version, which grows with each of them. Who
has seen a table takes no older one: an owner that does not know that it is none any more is obeyed by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """Of a table: the owner's election number, then the version. Ordered by age."""

    owner_rev: int
    version: int


NOTHING_SEEN = Mark(0, -1)
