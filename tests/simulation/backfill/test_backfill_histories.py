"""Whatever happens to tasks, sorters, jobs and backfills, a row that is older than the log is there once, until the log
changes it: every read of a history, at any ts, is what was there."""

from __future__ import annotations

from support.backfill_histories import BackfillHistory
from support.effort import cases
from support.simulated import WILD


def test_reads_over_backfills_are_what_was_there_and_histories_meet_what_they_have_to() -> None:
    met = [BackfillHistory(WILD, seed, keep_ms=keep_ms) for seed, keep_ms in cases([(11, 400)], [(4, 600), (14, None)])]
    for history in met:
        history.run()
    audits = [history.objects.audit for history in met]
    assert all(audit.index.bases > 10 for audit in audits)
    assert sum(audit.index.folds for audit in audits)
    assert max(audit.index.parts for audit in audits) > 1
    assert all(history.covered > 20 for history in met)
    assert all(one <= 4 for history in met for one in history.amplification())
