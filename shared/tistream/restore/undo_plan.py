"""Plans the undo of transactions: which rows are changed back, and which cannot be, because other transactions have
changed them since (conflicts).

An undo reverts *changes*; it does not return to a point in time. In each row that the chosen transactions changed, the
changed columns get their earlier values. Everything that other transactions did to other rows and columns stays. A row
is reverted only if its changed columns still have the values that the chosen transactions wrote. Otherwise it is a
conflict, which names the transaction that changed the row later. An undo does not find values that later transactions
have read from a row and written to other rows.

The chosen changes of one row are undone newest first, and the result is one statement for each row. Columns are matched
by their ids, because DDL may have renamed, added and dropped some in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

Cells = Mapping[int, Any]  # values by column id


@dataclass(frozen=True, slots=True)
class Change:
    """A chosen transaction's change of one row. `row`: the row's key as JSON text, as events show it. `table_id`: the
    id of its physical or logical table. `before` and `after` are the row's values; None if the row did not exist."""

    table_id: int
    row: str
    commit_ts: int
    start_ts: int
    before: Cells | None
    after: Cells | None

    @property
    def changed(self) -> frozenset[int]:
        """The ids of the columns that the change has set."""
        if self.before is None or self.after is None:
            return frozenset(self.before or self.after or ())
        return frozenset(
            column
            for column in {*self.before, *self.after}
            if self.before.get(column) != self.after.get(column) or (column in self.before) != (column in self.after)
        )


@dataclass(frozen=True, slots=True)
class CurrentRow:
    """The current state of a row. `cells` is None if the row does not exist. The timestamps are those of its newest
    change; 0 if no change of the row could be read."""

    cells: Cells | None
    commit_ts: int = 0
    start_ts: int = 0


class Reason(Enum):
    """Why the undo does not change a row."""

    CHANGED = "another transaction has changed the same columns since"
    GONE = "another transaction has deleted the row since"
    EXISTS = "another transaction has inserted the row again since"
    NO_TABLE = "the table does not exist any more, or was truncated: restore it instead"


@dataclass(frozen=True, slots=True)
class Reversal:
    """The change that undoes one row: it replaces the current values `now` by the earlier values `then`. `now` or
    `then` is None if the row does not or did not exist.

    `dropped`: earlier values of columns that no longer exist, by column id; they are reported and not written.
    """

    table_id: int
    row: str
    commit_ts: int
    now: Cells | None
    then: Cells | None
    dropped: Cells

    @property
    def changed(self) -> frozenset[int]:
        """The ids of the columns that the reversal sets: all columns if it inserts or deletes the row."""
        if self.now is None or self.then is None:
            return frozenset(self.now or self.then or ())
        return frozenset(column for column in self.now if self.now[column] != self.then.get(column))


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row that the undo does not change. `left`: the values that the chosen transaction wrote. `now`: the current
    values. `by`: (start_ts, commit_ts) of the row's newest change; (0, 0) if it is not known, or if the table no longer
    exists."""

    table_id: int
    row: str
    reason: Reason
    left: Cells | None
    now: Cells | None
    by: tuple[int, int]


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What an undo will do: the reversals, in the order in which they can be executed, and the conflicts. `unchanged`:
    the number of rows that already have their earlier values."""

    reversals: tuple[Reversal, ...]
    conflicts: tuple[Conflict, ...]
    unchanged: int


def plan_undo(
    changes: Iterable[Change], standing: Mapping[tuple[int, str], CurrentRow], columns: Mapping[int, frozenset[int]]
) -> UndoPlan:
    """Plan the undo of the given changes, with one result for each row. A row whose changed columns still have the
    written values gets a Reversal. A row that another transaction has changed since, or whose table no longer
    exists, gets a Conflict and is not changed. A row that already has its earlier values is only counted.

    Args:
        changes: every row event of the chosen transactions, in (commit_ts, start_ts) order; for one transaction and
            table, deletes before puts.
        standing: the current state of each changed row (table_id, row), read at one ts at or above every change.
        columns: for each table that still exists, the ids of its visible columns now.
    """
    chains: dict[tuple[int, str], list[Change]] = {}
    for change in changes:
        chains.setdefault((change.table_id, change.row), []).append(change)
    reversals: list[Reversal] = []
    conflicts: list[Conflict] = []
    unchanged = 0
    for (table_id, row), chain in chains.items():
        if table_id not in columns:
            conflicts.append(Conflict(table_id, row, Reason.NO_TABLE, chain[-1].after, None, (0, 0)))
            continue
        found = _reversed(chain, standing[table_id, row], columns[table_id])
        if isinstance(found, Conflict):
            conflicts.append(found)
        elif found.now == found.then:
            unchanged += 1
        else:
            reversals.append(found)
    return UndoPlan(tuple(_executable(reversals)), tuple(conflicts), unchanged)


def _reversed(chain: Sequence[Change], standing: CurrentRow, columns: frozenset[int]) -> Reversal | Conflict:
    """Undo the changes of one row (`chain`), newest first. Returns the resulting Reversal, or the Conflict that
    prevents it."""
    state = standing.cells
    dropped: dict[int, Any] = {}
    changed_since = standing.commit_ts > chain[-1].commit_ts
    for change in reversed(chain):
        reason = _difference(change, state, columns, changed_since)
        if reason is not None:
            by = (standing.start_ts, standing.commit_ts)
            return Conflict(change.table_id, change.row, reason, change.after, standing.cells, by)
        if change.before is None:
            state, dropped = None, {}
            continue
        lost = {column: value for column, value in change.before.items() if column not in columns}
        dropped.update({column: value for column, value in lost.items() if column in change.changed})
        kept = {column: value for column, value in change.before.items() if column in columns}
        state = kept if state is None else {**state, **{one: kept[one] for one in change.changed if one in kept}}
    newest = chain[-1]
    return Reversal(newest.table_id, newest.row, newest.commit_ts, standing.cells, state, dropped)


def _difference(change: Change, state: Cells | None, columns: frozenset[int], changed_since: bool) -> Reason | None:
    """Compare the current state of a row with the one that a change wrote. Returns the reason why they differ; None if
    every column that it changed still has the written value. If the change inserted the row, the undo deletes it whole.
    Then a value in a column that was added since is a difference too, because it would be lost."""
    if change.after is None:
        return None if state is None else Reason.EXISTS
    if state is None:
        return Reason.GONE
    same = all(state.get(column) == change.after.get(column) for column in change.changed & columns)
    if change.before is None and changed_since and not state.keys() <= change.after.keys():
        same = False
    return None if same else Reason.CHANGED


def _executable(reversals: Iterable[Reversal]) -> list[Reversal]:
    """Sort reversals into an order in which they can be executed: deletes, then updates, then inserts, so that no two
    rows have the same unique value in between. Within each of these groups, the newest is first."""
    return sorted(reversals, key=lambda one: (_rank(one), -one.commit_ts))


def _rank(reversal: Reversal) -> int:
    return 0 if reversal.then is None else 2 if reversal.now is None else 1
