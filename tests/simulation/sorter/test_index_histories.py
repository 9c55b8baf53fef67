"""Whatever happens to tasks, sorters and jobs, the version index has what was committed, and reads at any ts say so."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.effort import NAMED, cases, examples
from support.index_histories import IndexHistory
from support.simulated import WILD


@example(seed=13, keep_ms=400)  # a child of a merged and split task names segments of which it has no key
@settings(max_examples=examples(10), phases=NAMED, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), keep_ms=st.sampled_from([None, 300, 400, 800, 1_500]))
def test_reads_of_the_index_at_any_ts_are_what_was_committed(seed: int, keep_ms: int | None) -> None:
    IndexHistory(WILD, seed, keep_ms=keep_ms).run()


def test_histories_meet_what_they_have_to() -> None:
    met = [IndexHistory(WILD, seed, keep_ms=keep_ms) for seed, keep_ms in cases([(11, 400)], [(4, 600), (14, None)])]
    for history in met:
        history.run()
    audits = [history.objects.audit for history in met]
    assert all(audit.index.runs > 20 for audit in audits)
    assert sum(audit.index.folds for audit in audits)
    assert max(audit.index.parts for audit in audits) > 1
    assert all(history.reads > 5 for history in met)
    assert sum(len(history.world.sealed) for history in met) > 2 * len(met)
    assert all(one <= 4 for history in met for one in history.amplification())
