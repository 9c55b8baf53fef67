"""The undo of one transaction planned: tistream.restore, and Polars where all rows have the same columns."""

from __future__ import annotations

import polars as pl

from tistream.restore.undo_plan import Cells, Change, CurrentRow, plan_undo

TABLE, COLUMNS = 7, (1, 2, 3)
COMMIT_TS, LATER_TS = 1_000, 2_000
CONFLICT_EACH, SINCE_EACH = 10, 4  # every tenth row has its changed column changed again, every fourth another column


def before(row: int) -> Cells:
    """The row before the transaction, by column id."""
    return {1: row, 2: f"name {row}", 3: row % 97}


def after(row: int) -> Cells:
    """The row that an UPDATE without WHERE has left."""
    return {**before(row), 2: "x"}


def now(row: int) -> Cells:
    """The row now."""
    changed = {2: "y"} if row % CONFLICT_EACH == 0 else {3: -1} if row % SINCE_EACH == 0 else {}
    return {**after(row), **changed}


class Plan:
    """plan_undo of an update of that many rows. A call returns the reversals and conflicts."""

    def __init__(self, rows: int) -> None:
        ids = range(rows)
        self._changes = [Change(TABLE, str(row), COMMIT_TS, COMMIT_TS - 1, before(row), after(row)) for row in ids]
        self._standing = {(TABLE, str(row)): CurrentRow(now(row), LATER_TS, LATER_TS - 1) for row in ids}

    def __call__(self) -> tuple[int, int]:
        found = plan_undo(self._changes, self._standing, {TABLE: frozenset(COLUMNS)})
        return len(found.reversals), len(found.conflicts)


class PolarsPlan:
    """The same rows as three frames, joined: a row is a conflict where a changed column is not as it was left. The
    reversals get their columns, and no order."""

    def __init__(self, rows: int) -> None:
        self._before, self._after, self._now = (
            pl.DataFrame(
                [{"row": str(row), **{f"{name}{at}": cell for at, cell in of(row).items()}} for row in range(rows)]
            )
            for name, of in (("b", before), ("a", after), ("n", now))
        )

    def __call__(self) -> tuple[int, int]:
        joined = self._before.join(self._after, on="row").join(self._now, on="row")
        changed = {at: pl.col(f"b{at}").ne_missing(pl.col(f"a{at}")) for at in COLUMNS}
        moved = {at: pl.col(f"n{at}").ne_missing(pl.col(f"a{at}")) for at in COLUMNS}
        conflict = pl.any_horizontal([changed[at] & moved[at] for at in COLUMNS])
        then = [pl.when(changed[at]).then(f"b{at}").otherwise(f"n{at}").alias(f"t{at}") for at in COLUMNS]
        planned = joined.with_columns(conflict.alias("conflict"), *then)
        conflicts = int(planned["conflict"].sum())
        return len(planned) - conflicts, conflicts
