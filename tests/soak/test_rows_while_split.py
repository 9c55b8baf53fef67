"""The rows at every commit of a recorded cluster are what SELECT showed, from 1, 4 and 16 tasks that are split while
the index is merged and retention drops what is old. `simulation/sorter/test_golden_index.py` has a slice of it."""

from __future__ import annotations

import pytest

from support.points_world import commits
from support.rows_while_split import NAME, RowsWhileSplit


@pytest.mark.parametrize("tasks", [1, 4, 16])
def test_rows_at_every_commit_are_what_select_showed(tasks: int) -> None:
    one = RowsWhileSplit(tasks, None, each=40)
    one.run()
    assert one.compared > 200
    assert one.check_all() == len(list(commits(NAME)))


@pytest.mark.parametrize(("tasks", "keep_ms"), [(4, 3_000), (1, 1_000), (16, 5_000)])
def test_with_a_retention_rows_above_the_floor_are_what_select_showed(tasks: int, keep_ms: int) -> None:
    one = RowsWhileSplit(tasks, keep_ms, each=40)
    index, _ = one.run()
    assert index.objects.audit.index.folds
    assert one.compared > 20
    assert 0 < one.check_all() < len(list(commits(NAME)))
