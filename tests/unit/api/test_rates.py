"""What a tenant may have in a second, and that others keep theirs."""
# Attack: limits at random times: never more than the rate and one burst

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tistream.clock import ManualClock
from tistream.errors import TooManyRequests
from tistream_api.admission.tenant_limits import REMEMBERED, TenantLimits
from tistream_api.admission.token_bucket import BURST_S, Bucket, EnforcedLimits

ACME, BETA = ("7", "acme"), ("7", "beta")


@given(
    st.floats(0.1, 1_000),
    st.lists(st.tuples(st.integers(0, 2_000), st.floats(0.1, 50)), max_size=80),
)
@example(11.152867567617434, [(0, 10.152867567617434), (848, 12.152867567617434), (99, 22.411693711158893)])
def test_no_more_than_the_rate_and_one_burst_is_ever_taken(rate: float, asked: list[tuple[int, float]]) -> None:
    bucket, now_ms, taken, largest = Bucket(0), 0, 0.0, 0.0
    for pause_ms, amount in asked:
        now_ms += pause_ms
        wait_s = bucket.take(now_ms, rate, amount)
        largest = max(largest, amount)
        if wait_s == 0:
            taken += amount
        else:
            later = Bucket(bucket.at_ms, bucket.spent)
            assert later.take(now_ms + int(wait_s * 1000) + 1, rate, amount) == 0, "it may be had when it said"
    assert taken <= rate * (now_ms / 1000 + BURST_S) + largest + 1e-6


@given(st.floats(1, 1_000), st.lists(st.floats(0, 10_000), max_size=30))
def test_who_waits_as_told_is_sent_no_more_than_the_rate(rate: float, pieces: list[float]) -> None:
    bucket, now_s = Bucket(0), 0.0
    for piece in pieces:
        now_s += bucket.charge(int(now_s * 1000), rate, piece)
    assert sum(pieces) <= rate * (now_s + BURST_S + 0.001 * (len(pieces) + 1)) + 1e-6


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = Bucket(1_000)
    while not bucket.take(1_000, 5):
        pass
    assert bucket.take(0, 5) > 0
    assert bucket.take(900, 5) > 0
    assert bucket.take(1_200, 5) == 0


def limits(clock: ManualClock, own: EnforcedLimits, pulls_max: int = 16) -> TenantLimits:
    return TenantLimits(clock, lambda tenant: own if tenant == ACME else EnforcedLimits(), pulls_max)


def test_bytes_are_reserved_by_one_of_those_that_ask_at_once() -> None:
    clock = ManualClock()
    found = limits(clock, EnforcedLimits(served_bytes_per_second=100))
    assert [found.reserve(ACME, 150) for _ in range(3)] == [True, False, False]
    assert found.reserve(BETA, 1 << 40)
    clock.advance(1_000)
    assert [found.reserve(ACME, 150) for _ in range(2)] == [True, False]
    clock.advance(2_000)
    assert [found.reserve(ACME, 1_000_000) for _ in range(2)] == [True, False], "above a burst, once all is made up"


def test_a_flood_of_one_tenant_is_refused_and_the_other_is_not() -> None:
    clock = ManualClock()
    found = limits(clock, EnforcedLimits(requests_per_second=10, notifications_per_second=1))
    for _ in range(20):
        found.request(ACME)
    with pytest.raises(TooManyRequests) as raised:
        found.request(ACME)
    assert raised.value.retry_after_s == pytest.approx(0.1)
    for _ in range(1_000):
        found.request(BETA)
        found.notification(BETA)
    clock.advance(100)
    found.request(ACME)
    with pytest.raises(TooManyRequests):
        found.request(ACME)


@pytest.mark.parametrize(("own", "most"), [(0, 8), (3, 3), (12, 12), (100, 14)])
def test_no_tenant_has_every_pull_of_the_server(own: int, most: int) -> None:
    found = limits(ManualClock(), EnforcedLimits(pulls_at_once=own))
    for _ in range(most):
        found.begin_pull(ACME)
    with pytest.raises(TooManyRequests):
        found.begin_pull(ACME)
    found.begin_pull(BETA)
    found.end_pull(ACME)
    found.begin_pull(ACME)


def test_a_server_of_one_pull_gives_it_to_whoever_comes() -> None:
    found = limits(ManualClock(), EnforcedLimits(), pulls_max=1)
    found.begin_pull(ACME)
    with pytest.raises(TooManyRequests):
        found.begin_pull(ACME)


def flooded(found: TenantLimits) -> bool:
    """Whether one of ten requests at once is refused."""
    for _ in range(10):
        try:
            found.request(ACME)
        except TooManyRequests:
            return True
    return False


def test_names_that_somebody_makes_up_are_forgotten_and_a_tenants_debt_is_not() -> None:
    clock = ManualClock()
    every = EnforcedLimits(requests_per_second=1)
    found = TenantLimits(clock, lambda _: every, 8)
    refused = 0
    for number in range(3 * REMEMBERED):
        found.request(("7", f"made-up-{number}"))
        clock.advance(2)
        if number % 100 == 0:
            refused += flooded(found)
    assert refused > 50
    assert len(found._of) <= REMEMBERED + 1
