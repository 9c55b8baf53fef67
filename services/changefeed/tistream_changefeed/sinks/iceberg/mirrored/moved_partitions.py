"""The physical ids whose rows come to a table or leave it by a DDL of its partitions, without row events. Pure.

DROP and TRUNCATE PARTITION take ids with all of their rows from a table, EXCHANGE PARTITION swaps two ids between two
tables, and a job that is rolled back gives ids back. Other DDLs that change the ids, such as REORGANIZE PARTITION, copy
the rows, so SELECT shows the same ones before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tistream.schema.visible import TableVersion

_MOVE_ROWS = frozenset({"drop partition", "truncate partition", "exchange partition"})
_TRUNCATE = "truncate partition"
_UNDONE = "rollback of "


@dataclass(frozen=True, slots=True)
class MovedIds:
    """The physical ids that a table had before a DDL alone (`gone`) and after it alone (`come`). `whole`: the table
    keeps none."""

    gone: Sequence[int]
    come: Sequence[int]
    whole: bool


def moved_ids(action: str, before: TableVersion | None, after: TableVersion) -> MovedIds | None:
    """The ids that a DDL of this action moves with their rows; None if it moves no rows."""
    if before is None or action.removeprefix(_UNDONE) not in _MOVE_ROWS:
        return None
    old, new = set(before.head.physical_ids), set(after.head.physical_ids)
    come = [] if action == _TRUNCATE else sorted(new - old)  # a partition that was truncated has a new id, and no rows
    return None if old == new else MovedIds(sorted(old - new), come, not old & new)
