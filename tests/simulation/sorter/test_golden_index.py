"""A recorded cluster through the version index: its rows at every commit timestamp are those that TiDB showed.

The oracle's committed rows are compared with TiDB's own SELECT by test_golden_decode.py; here the index is compared
with the oracle, value by value: the rows at each ts, and the version below each change with its old value
(invariant 26). A few commits are also compared with SELECT, by the reads of the API, while the tasks are split.
"""

from __future__ import annotations

import pytest

from support.effort import cases
from support.golden_index import changes
from support.rows_while_split import RowsWhileSplit


@pytest.mark.parametrize("tasks", cases([4], [1, 16]))
def test_rows_at_every_commit_are_what_was_committed(tasks: int) -> None:
    rows = RowsWhileSplit(tasks, None, each=2)
    one, _ = rows.run()
    assert one.check() == len(changes("everything"))
    assert one.objects.audit.index.runs > tasks
    assert rows.compared > 10


@pytest.mark.parametrize(("tasks", "keep_ms"), cases([(4, 3_000)], [(1, 1_000), (16, 5_000)]))
def test_with_a_retention_rows_from_the_base_on_are_what_was_committed(tasks: int, keep_ms: int) -> None:
    rows = RowsWhileSplit(tasks, keep_ms, each=2)
    one, _ = rows.run()
    assert 0 < one.check() < len(changes("everything"))
    assert one.objects.audit.index.folds
    assert rows.compared
