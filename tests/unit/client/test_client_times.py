"""Times that users give to the client, and TSO as times and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.model.ts import from_physical_ms
from tistream_client import TimeLike, WrongArgument, to_datetime, to_ts
from tistream_client.core.times import ts_of

NOW = datetime(2026, 11, 20, 14, 3, 0, 250_000, tzinfo=UTC)
NOW_MS = 1_795_183_380_250
EAST = timezone(timedelta(hours=8))


def ts(value: TimeLike) -> int:
    return ts_of("since", value, lambda: NOW)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("now", NOW_MS),
        ("10m", NOW_MS - 600_000),
        ("1500ms", NOW_MS - 1_500),
        ("2h", NOW_MS - 7_200_000),
        ("7d", NOW_MS - 604_800_000),
        (timedelta(seconds=1), NOW_MS - 1_000),
        (NOW, NOW_MS),
        (datetime(2026, 11, 20, 22, 3, 0, 250_999, tzinfo=EAST), NOW_MS),
        ("2026-11-20T14:03:00.25Z", NOW_MS),
        ("2026-11-20T22:03:00.250999+08:00", NOW_MS),
        ("2026-11-20 14:03z", NOW_MS - 250),
        ("2026-11-20Z", NOW_MS - 250 - (14 * 60 + 3) * 60_000),
        (from_physical_ms(NOW_MS), NOW_MS),
        (str(from_physical_ms(NOW_MS)), NOW_MS),
    ],
)
def test_every_form_of_a_time_is_the_first_ts_of_its_millisecond(value: TimeLike, ms: int) -> None:
    assert ts(value) == from_physical_ms(ms)


@given(st.integers(0, 2**63 - 1))
def test_the_time_of_a_ts_is_that_of_its_millisecond(value: int) -> None:
    if value >> 18 > 253_402_300_799_999:
        with pytest.raises(OverflowError):
            to_datetime(value)
    else:
        assert to_ts(to_datetime(value)) == value >> 18 << 18


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("10 minutes", r"since '10 minutes' is no time; right: \"10m\", \"now\", .*, or a TSO"),
        ("2026-11-20T14:03:00", r"since '2026-11-20T14:03:00' has no zone; right: \"2026-11-20T14:03:00Z\""),
        ("2026-13-20T14:03:00Z", r"is no time \(month must be in 1..12"),
        ("-10m", "is no time"),
        ("", "is no time"),
        (
            NOW.replace(tzinfo=None),
            r"has no zone; right: datetime\(2026, 11, 20, 14, 3, 0, 250000, tzinfo=timezone.utc\)",
        ),
        (1_795_183_380, r"looks like a Unix time, .*; right: datetime.fromtimestamp\(1795183380, timezone.utc\)"),
        (1_795_183_380_250, r"right: datetime.fromtimestamp\(1795183380250 / 1000, timezone.utc\)"),
        (1_795_183_380_250_000, r"datetime.fromtimestamp\(1795183380250000 / 1000_000, timezone.utc\)"),
        (-1, "since -1 is no TSO"),
        (2**63, "is no TSO"),
        (True, "since is True, which is no time"),
        (1.5, "since is 1.5, which is no time"),
        (timedelta(minutes=-1), "is negative"),
        ("999999d", "is before the year 1"),
        ("30000d", "which begin in 1970"),
    ],
)
def test_what_is_no_time_is_refused_with_a_right_one(value: TimeLike, text: str) -> None:
    with pytest.raises(WrongArgument, match=text) as refused:
        ts(value)
    assert refused.value.argument == "since"
    assert re.search("; right: .", str(refused.value))
