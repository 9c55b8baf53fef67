"""Whatever happens to tasks, sorters, jobs and backfills, a row that is older than the log is there once, until the log
changes it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.backfill_histories import BackfillHistory
from support.effort import cases, examples
from support.simulated import WILD


@settings(max_examples=examples(10, few=1), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), keep_ms=st.sampled_from([None, 300, 400, 800, 1_500]))
def test_reads_over_backfills_at_any_ts_are_what_was_there(seed: int, keep_ms: int | None) -> None:
    BackfillHistory(WILD, seed, keep_ms=keep_ms).run()


def test_histories_of_backfills_meet_what_they_have_to() -> None:
    met = [BackfillHistory(WILD, seed, keep_ms=keep_ms) for seed, keep_ms in cases([(11, 400)], [(4, 600), (14, None)])]
    for history in met:
        history.run()
    audits = [history.objects.audit for history in met]
    assert all(audit.index.bases > 10 for audit in audits)
    assert sum(audit.index.folds for audit in audits)
    assert max(audit.index.parts for audit in audits) > 1
    assert all(history.covered > 20 for history in met)
    assert all(one <= 4 for history in met for one in history.amplification())
