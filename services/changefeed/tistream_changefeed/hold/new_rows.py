"""Finds out whether a tenant has new rows that concern a feed. One search serves all idle shards of the tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tistream.arrays import Int64s
from tistream.errors import TiStreamError
from tistream.model.ts import Window
from tistream.read import plan
from tistream.read.cursor import Scope
from tistream.read.plan import GroupRef
from tistream.read.source import TenantSource


@dataclass(slots=True)
class NewRows:
    """The rows and DDLs of a tenant in one window of commit_ts. A scope says which tables a feed reads. A row group is
    read only if its bounds do not decide whether it has rows of a scope, and then only once for all shards."""

    source: TenantSource
    window: Window
    _ddl: bool | None = None
    _groups: Sequence[GroupRef] = ()
    _ids: dict[int, Int64s] = field(default_factory=dict)  # of the rows in the window, by row group

    def concerns(self, scope: Scope) -> bool:
        """Whether the window may have rows of the scope, or a DDL. True if that cannot be read: then the reader meets
        the same failure, and reports it."""
        try:
            if self._ddl is None:
                self._groups = plan.groups_in(self.source.segments(self.window), self.window, None)
                self._ddl = bool(len(self.source.ddl_events(scope, self.window)))
            return self._ddl or (bool(self._groups) and self._rows(self.source.physical_ids(scope, self.window)))
        except TiStreamError:
            return True

    def _rows(self, ids: Int64s | None) -> bool:
        for number, group in enumerate(self._groups):
            if not plan.may_hold(group.info, ids, raw=False):
                continue
            found = self._of(number, group)
            if (found > 0).any() if ids is None else np.isin(found, ids).any():
                return True
        return False

    def _of(self, number: int, group: GroupRef) -> Int64s:
        if number not in self._ids:
            index = self.source.index(group)
            within = (index.commit_ts > self.window.low) & (index.commit_ts <= self.window.high)
            self._ids[number] = np.unique(index.table_id[within])
        return self._ids[number]
