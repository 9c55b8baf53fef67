"""As `simulation/backfill/test_backfill_histories.py`, whose histories `make test` runs too: any history."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.backfill_histories import BackfillHistory
from support.effort import examples
from support.simulated import WILD


@settings(max_examples=examples(10, few=1), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), keep_ms=st.sampled_from([None, 300, 400, 800, 1_500]))
def test_reads_over_backfills_at_any_ts_are_what_was_there(seed: int, keep_ms: int | None) -> None:
    BackfillHistory(WILD, seed, keep_ms=keep_ms).run()
