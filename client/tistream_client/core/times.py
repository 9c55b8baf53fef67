"""Reads the times that users give: a TSO, a datetime, an age such as `10m`, an ISO 8601 text, `now`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from tistream_client.core.errors import WrongArgument
from tistream_client.core.ts import MAX_TS, to_ts

TimeLike = int | str | datetime | timedelta
Clock = Callable[[], datetime]
NOW = "now"
EARLIEST = "earliest"

_RIGHT = '"10m", "now", "2026-11-20T14:03:00Z", datetime.now(timezone.utc) - timedelta(hours=2), or a TSO'
_AGE = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNIT = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d)?(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)?")
# Unix times of 1998 to 2128 in seconds, milliseconds and microseconds. As TSO they lie in the first hours of 1970.
_UNIX_TIMES = tuple((low * 10**power, high * 10**power) for low, high, power in [(9, 50, 8), (9, 50, 11), (9, 50, 14)])


def ts_of(argument: str, value: TimeLike, clock: Clock) -> int:
    """The TSO that the value of `argument` means. Ages are before the time of `clock`. Raises WrongArgument."""
    if isinstance(value, bool) or not isinstance(value, (int, str, datetime, timedelta)):
        raise WrongArgument(argument, f"is {value!r}, which is no time", _RIGHT)
    if isinstance(value, int):
        return _tso(argument, value)
    if isinstance(value, timedelta):
        return _ago(argument, value, clock)
    if isinstance(value, datetime):
        return _ts(argument, value)
    return _ts_of_text(argument, value.strip(), clock)


def _ts_of_text(argument: str, text: str, clock: Clock) -> int:
    if text == NOW:
        return _ts(argument, clock())
    if text.isascii() and text.isdigit():
        return _tso(argument, int(text))
    if age := _AGE.fullmatch(text):
        return _ago(argument, timedelta(**{_UNIT[age[2]]: int(age[1])}), clock)
    found = _ISO.fullmatch(text) if text.isascii() else None
    if found is None:
        raise WrongArgument(argument, f"{text!r} is no time", _RIGHT)
    if found[5] is None:
        raise WrongArgument(argument, f"{text!r} has no zone", f'"{found[1]}T{found[2] or "00:00"}:00Z"')
    fraction = ((found[4] or ".")[1:] + "000000")[:6]
    zone = "+00:00" if found[5] in "Zz" else found[5]
    try:
        time = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}{found[3] or ':00'}.{fraction}{zone}")
    except ValueError as error:
        raise WrongArgument(argument, f"{text!r} is no time ({error})", _RIGHT) from None
    return _ts(argument, time)


def _tso(argument: str, value: int) -> int:
    if not 0 <= value <= MAX_TS:
        raise WrongArgument(argument, f"{value} is no TSO, which lies from 0 to {MAX_TS}", _RIGHT)
    for number, (low, high) in enumerate(_UNIX_TIMES):
        if low <= value < high:
            seconds = f"{value} / 1000{'' if number == 1 else '_000'}" if number else str(value)
            right = f"datetime.fromtimestamp({seconds}, timezone.utc)"
            raise WrongArgument(argument, f"{value} looks like a Unix time, and an integer means a TSO", right)
    return value


def _ago(argument: str, age: timedelta, clock: Clock) -> int:
    if age < timedelta(0):
        raise WrongArgument(argument, f"{age!r} is negative, and means a time before now", "timedelta(minutes=10)")
    try:
        return _ts(argument, clock() - age)
    except OverflowError:
        raise WrongArgument(argument, f"{age!r} is before the year 1", _RIGHT) from None


def _ts(argument: str, time: datetime) -> int:
    if time.utcoffset() is None:
        right = f"{time.replace(tzinfo=timezone.utc)!r}".replace("datetime.", "")
        raise WrongArgument(argument, f"{time.isoformat()} has no zone", right)
    try:
        return to_ts(time)
    except ValueError as error:
        raise WrongArgument(argument, str(error), _RIGHT) from None
