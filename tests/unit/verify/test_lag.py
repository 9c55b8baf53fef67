"""Quantiles of delays, and when a lag is back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tistream.verify.lag import Delays, LagSample, recovered_ms


@given(st.lists(st.integers(-5, 100_000), min_size=1), st.floats(0.01, 1.0))
def test_quantiles_are_those_of_the_sorted_delays(values: list[int], share: float) -> None:
    delays = Delays()
    for value in values:
        delays.add(value)
    ordered = sorted(max(0, value) for value in values)
    exact = ordered[max(0, -(-len(ordered) * share // 1).__trunc__() - 1)]
    assert exact <= delays.quantile_ms(share) <= exact + (0 if exact < 10_000 else 100)
    assert delays.max_ms == ordered[-1]


def test_no_delays_no_quantile() -> None:
    assert Delays().quantile_ms(0.5) == 0


def test_a_lag_is_back_when_it_stays_below() -> None:
    lags = [(0, 100), (10, 6_000), (20, 4_000), (30, 7_000), (40, 900), (50, 100)]
    samples = [LagSample(at, lag, 0) for at, lag in lags]
    assert recovered_ms(samples, 5, 100, 5_000) == 35
    assert recovered_ms(samples, 5, 25, 5_000) == 15
    assert recovered_ms(samples, 35, 100, 5_000) == 0
    assert recovered_ms(samples, 5, 30, 5_000) is None
    assert recovered_ms(samples, 60, 100, 5_000) is None
