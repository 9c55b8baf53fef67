"""Times as people write and read them, and TSO: one grammar for every option that takes a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import typer

from tistream_client.cli.errors import USAGE, CliError
from tistream_client.core.errors import WrongArgument
from tistream_client.core.times import EARLIEST, NOW, ts_of
from tistream_client.core.ts import to_datetime

FORMS = "now, 15m (before now), 10:05 (today), 2026-11-21T10:00:00Z, or a TSO"
SINCE_FORMS = f"earliest, {FORMS}"
_OF_TODAY = re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:[Zz]|([+-])(\d\d):(\d\d))?", re.ASCII)


def now_ms() -> int:
    """The present, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def ts_text(text: str, at_ms: int, forms: str = FORMS) -> str:
    """Convert a time to the value of a ts parameter. The time is `now`, which stays, a TSO, an ISO 8601 time (UTC
    without a zone; a date alone is its midnight; without a date it is of the day that `at_ms` has in the zone), or an
    age before `at_ms` such as 250ms, 90s, 15m, 36h, 7d. Raises CliError with the status of wrong usage."""
    if text == NOW:
        return text
    if found := _OF_TODAY.fullmatch(text):
        text = f"{_day(at_ms, found)}T{text}"
    for zone in ("", "Z"):  # a time without a zone is one of UTC
        try:
            return str(ts_of("the time", text + zone, lambda: datetime.fromtimestamp(at_ms / 1000, timezone.utc)))
        except WrongArgument as error:
            if zone or "has no zone" not in str(error):
                reason = (
                    str(error).partition("; right:")[0].removeprefix("the time ").replace("is no time", "is not a time")
                )
                raise CliError(f"{reason}: use {forms}", USAGE) from error
    raise AssertionError("the second form returns or raises")


def _day(at_ms: int, found: re.Match[str]) -> str:
    """The date of `at_ms` in the zone of a matched time without a date."""
    sign, hours, minutes = found.groups()
    east = timedelta(0) if sign is None else timedelta(hours=int(hours), minutes=int(minutes))
    day = datetime.fromtimestamp(at_ms / 1000, timezone.utc) + (-east if sign == "-" else east)
    return f"{day:%Y-%m-%d}"


def since_text(text: str | None, at_ms: int) -> str | None:
    """Convert the time where a read begins, like ts_text. Returns None, which means the beginning of what is retained,
    for None and `earliest`."""
    return None if text is None or text == EARLIEST else ts_text(text, at_ms, SINCE_FORMS)


def time_form(text: str | None) -> str | None:
    """Check the text of a time, and return it unchanged; None (the option is absent) passes. For Typer's `callback`.
    Raises BadParameter."""
    return text if text is None else _checked(text, lambda: ts_text(text, now_ms()))


def since_form(text: str | None) -> str | None:
    """Check the text like time_form; `earliest` is accepted too."""
    return text if text is None else _checked(text, lambda: since_text(text, now_ms()))


def start_ts_form(text: str) -> str:
    """Check the text of a transaction's start_ts, and return it unchanged. For Typer's `callback`. Raises
    BadParameter."""
    if not (text.isascii() and text.isdigit()):
        raise typer.BadParameter(
            f"{text!r} is not a start_ts, such as 470597720583962624: events and `history` have it"
        )
    return text


def _checked(text: str, read: Callable[[], object]) -> str:
    try:
        read()
    except CliError as error:
        raise typer.BadParameter(str(error)) from error
    return text


def parse_ts(text: str) -> int:
    """The TSO of an option's text; `now` is the time of this machine. For Typer's `parser`."""
    at_ms = now_ms()
    try:
        return at_ms << 18 if text == NOW else int(ts_text(text, at_ms))
    except CliError as error:
        raise typer.BadParameter(str(error)) from error


def shown_time(ts: str) -> str:
    """Format a TSO as a time in UTC, with milliseconds."""
    try:
        return f"{to_datetime(int(ts)).replace(tzinfo=None):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    except OverflowError:  # a time after the year 9999
        return ts


def shown_ts(ts: str | None) -> str:
    """Format a TSO with its time; `-` for none."""
    return "-" if ts is None else f"{ts} ({shown_time(ts)})"


def shown_seconds(seconds: float) -> str:
    """Format a duration with its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
