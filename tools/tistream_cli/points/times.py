"""Converts between TSO and the times that people write and read: RFC 3339, and times relative to now."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tistream.model.ts import from_physical_ms, physical_ms
from tistream_cli.errors import CliError

_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def ts_text(text: str, now_ms: int) -> str:
    """Convert a time to the value of a ts parameter. The time is `now`, a TSO, an RFC 3339 time (UTC without a zone; a
    date alone is its midnight), or a time before now such as 90s, 15m, 36h, 7d. Raises CliError."""
    if text == "now" or (text.isascii() and text.isdigit()):
        return text
    if found := _AGO.fullmatch(text):
        return str(from_physical_ms(max(0, now_ms - int(found[1]) * _UNIT_MS[found[2]])))
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError as error:
        raise CliError(f"{text!r} is not a time: use now, 15m (before now), 2026-11-21T10:00:00Z, or a TSO") from error
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return str(from_physical_ms(max(0, round(at.timestamp() * 1000))))


def shown_time(ts: str) -> str:
    """Format a TSO as a time in UTC, with milliseconds."""
    ms = physical_ms(int(ts))
    try:
        at = datetime.fromtimestamp(ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a time after the year 9999
        return ts
    return f"{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03}"
