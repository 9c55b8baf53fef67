"""What a process tells of tenants' usage: totals by hour, told until somebody has taken them."""

from __future__ import annotations

from collections import Counter

import pytest

from tistream.clock import ManualClock
from tistream.errors import Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.service.observe.usage import HOURS_MAX, UsageMeter
from tistream.wire.usage import ENTRIES_MAX, HOUR_MS, UsageReport

ACME = TenantKey("7", "acme")


class Process:
    """One, and a meta server that keeps the greatest of what it is told."""

    def __init__(self) -> None:
        self.clock = ManualClock(5 * HOUR_MS + 1_000)
        self.requests: dict[TenantKey, Counter[str]] = {ACME: Counter()}
        self.reports: list[UsageReport] = []
        self.fails: Exception | None = None
        self.meter = UsageMeter("api-1", "i1", self.clock, lambda: self.requests, self.send)

    def send(self, report: UsageReport) -> None:
        self.reports.append(report)
        if self.fails is not None:
            raise self.fails

    def told(self) -> dict[tuple[str, int], tuple[int, int, dict[str, int]]]:
        """(tenant, hour) -> the newest."""
        return {
            (one.tenant_id, one.hour_ms // HOUR_MS): (one.bytes_served, one.rows_served, one.requests)
            for report in self.reports
            for one in report.counted
        }


def test_totals_are_told_and_nothing_where_nothing_happened() -> None:
    one = Process()
    one.meter.served(ACME, 100, 2)
    one.meter.served(ACME, 50)
    one.requests[ACME].update(get=3)
    one.meter.report()
    assert one.told() == {("acme", 5): (150, 2, {"get": 3})}
    one.meter.report()
    assert len(one.reports) == 1
    one.requests[ACME].update(get=1, put=1)
    one.meter.report()
    assert one.told() == {("acme", 5): (150, 2, {"get": 4, "put": 1})}


def test_each_hour_has_its_own_total() -> None:
    one = Process()
    one.meter.served(ACME, 100)
    one.requests[ACME].update(get=3)
    one.meter.report()
    one.clock.advance(HOUR_MS)
    one.meter.served(ACME, 7)
    one.requests[ACME].update(get=2)
    one.meter.report()
    assert one.told() == {("acme", 5): (100, 0, {"get": 3}), ("acme", 6): (7, 0, {"get": 2})}


@pytest.mark.parametrize("error", [Unavailable("no answer"), UnknownName("an old one")])
def test_what_was_not_taken_is_told_again(error: Exception) -> None:
    one = Process()
    one.fails = error
    for hour in range(3):
        one.meter.served(ACME, 10 + hour)
        one.requests[ACME].update(get=1)
        with pytest.raises(Unavailable):
            one.meter.report()
        one.clock.advance(HOUR_MS)
    one.reports.clear()
    one.fails = None
    one.meter.report()
    assert one.told() == {("acme", 5 + hour): (10 + hour, 0, {"get": 1}) for hour in range(3)}


def test_of_days_without_an_answer_the_newest_hours_are_kept() -> None:
    one = Process()
    one.fails = Unavailable("no answer")
    for _ in range(HOURS_MAX + 10):
        one.clock.advance(HOUR_MS)
        one.meter.served(ACME, 1)
        with pytest.raises(Unavailable):
            one.meter.report()
    one.reports.clear()
    one.fails = None
    one.meter.report()
    assert len(one.told()) == HOURS_MAX + 1


def test_a_clock_that_is_set_back_begins_no_hour_anew() -> None:
    one = Process()
    one.clock.advance(HOUR_MS - 2_000)
    one.meter.served(ACME, 10)
    one.meter.report()
    one.clock.advance(2_000)
    one.meter.report()
    one.clock._now_ms -= 2_000
    one.meter.served(ACME, 1)
    one.meter.report()
    assert one.told() == {("acme", 5): (11, 0, {})}


def test_many_tenants_are_told_in_parts() -> None:
    one = Process()
    for number in range(ENTRIES_MAX + 5):
        one.meter.served(TenantKey("7", f"t{number}"), 1)
    one.meter.report()
    assert [len(report.counted) for report in one.reports] == [ENTRIES_MAX, 5]


def test_the_last_report_fails_quietly() -> None:
    one = Process()
    one.fails = Unavailable("no answer")
    one.meter.served(ACME, 1)
    one.meter.last_report()
    assert len(one.reports) == 1
