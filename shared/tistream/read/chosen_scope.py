"""The scope of a reader, such as a changefeed, whose tables are chosen by rules from all databases of a tenant.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tistream.arrays import Int64s
from tistream.model.ts import Window
from tistream.read.cursor import Scope
from tistream.schema.history import History
from tistream.schema.visible import TableVersion

_KEPT = 1_024  # number of choices whose ids are cached: one for each set of rules among the feeds of a tenant


class TableChoice(Protocol):
    """Chooses tables by looking at their versions. Equal choices choose the same tables, and have equal hashes."""

    def __hash__(self) -> int: ...

    def chosen(self, versions: Sequence[TableVersion]) -> Sequence[bool]:
        """For each version, whether the reader reads its rows."""


@dataclass(frozen=True, slots=True)
class ChosenScope(Scope):
    """The scope of a reader that reads the rows of chosen tables. It includes every DDL, because the reader decides
    whether a DDL of another table matters."""

    # Never None; it has a default only because the fields of the base class have defaults.
    choice: TableChoice | None = None

    def shows(self, version: TableVersion) -> bool:
        """Whether the reader gets rows of this version."""
        assert self.choice is not None
        return bool(self.choice.chosen([version])[0])


@dataclass(frozen=True, slots=True)
class FoundIds:
    """The physical ids, ascending, that rows of chosen tables have; None: rows of any id are read."""

    ids: Int64s | None


class ChosenIds:
    """Caches the physical ids of chosen tables. They are computed anew only after a table has changed, because a tenant
    may have very many tables. Not thread-safe."""

    def __init__(self) -> None:
        self._of: History | None = None
        self._known: dict[ChosenScope, tuple[int, FoundIds]] = {}

    def known(self, history: History, scope: ChosenScope, window: Window) -> FoundIds | None:
        """The cached physical ids of the tables that `scope` chooses in this window; None if they must be computed,
        because they are not cached or a table has changed since. Clears the cache if `history` is another object than
        before."""
        if history is not self._of:
            self._of, self._known = history, {}
        known = self._known.get(scope)
        same = known is not None and known[0] == history.steady_since(window.low, window.high)
        return known[1] if known is not None and same else None

    def keep(self, history: History, scope: ChosenScope, since: int | None, found: FoundIds) -> None:
        """Cache `found`, the physical ids of the tables that `scope` chooses. `since` is what History.steady_since
        returns for the window for which they were computed; None: they are not cached. They are not cached either if
        `history` is not that of the last call of `known`."""
        if since is None or history is not self._of:
            return
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[scope] = since, found


def chosen_ids(tables: Sequence[TableVersion], scope: ChosenScope) -> FoundIds:
    """The ids that rows of the scope have, among these base tables. If the scope is a tenant of which every table is
    chosen, rows of any id are read, so that a row whose id no schema contains is noticed."""
    assert scope.choice is not None
    chosen = scope.choice.chosen(tables)
    if scope.database is None and all(chosen):
        return FoundIds(None)
    found = {one for version, taken in zip(tables, chosen, strict=True) if taken for one in version.head.physical_ids}
    return FoundIds(np.array(sorted(found), np.int64))
