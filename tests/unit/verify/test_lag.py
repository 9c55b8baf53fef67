"""Quantiles of delays, and when a lag is back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tistream_verify.lag import Delays, LagSample, Promise, beyond_promises, recovered_ms


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


def test_what_the_upstream_has_not_promised_is_not_the_platforms_lag() -> None:
    promises = [
        Promise(at_ms, promised_ms << 18) for at_ms, promised_ms in ((1_000, 900), (2_000, 950), (8_000, 7_500))
    ]

    def own(at_ms: int, readable_ms: int) -> int:
        (sample,) = beyond_promises([LagSample(at_ms, at_ms - readable_ms, 3)], promises)
        assert (sample.at_ms, sample.events) == (at_ms, 3)
        return sample.lag_ms

    assert own(1_400, 850) == 400  # 900 has been promised at 1,000
    assert own(2_300, 900) == 300
    assert own(7_900, 950) == 0  # nothing newer is promised, though 950 was long ago
    assert own(8_600, 950) == 600
    assert own(9_000, 7_500) == 0


def test_promises_are_read_as_they_are_written() -> None:
    promise = Promise(1_760_000_000_123, 461_373_440_000_000_001)
    assert Promise.parse(promise.encode()) == promise
