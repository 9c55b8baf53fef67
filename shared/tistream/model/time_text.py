"""Points in time as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tistream.model.ts import MAX_TS, from_physical_ms

_SHOWN_MAX = 40
_DIGITS = re.compile(r"[0-9]{1,40}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_AGO = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_ts(text: str) -> int:
    """The ts that a text means: decimal digits are a TSO, an RFC 3339 time is the first ts of its millisecond. Raises
    ValueError."""
    if text.isascii() and _DIGITS.fullmatch(text):
        if int(text) > MAX_TS:
            raise ValueError(f"{text} does not lie from 0 to {MAX_TS}")
        return int(text)
    found = _TIME.fullmatch(text) if text.isascii() else None
    try:
        if found is None:
            raise ValueError
        zone = "+00:00" if found[4] in "Zz" else found[4]
        at = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}").astimezone(UTC)
        ms = int(at.timestamp()) * 1000 + int(((found[3] or ".0")[1:] + "00")[:3])
    except (ValueError, OverflowError):
        shown = repr(text[:_SHOWN_MAX])
        raise ValueError(f"{shown} is not a TSO, an RFC 3339 time (in a URL, + is %2B), or now") from None
    if not 0 <= ms <= MAX_TS >> 18:
        raise ValueError(f"{text} does not lie in the range of timestamps")
    return from_physical_ms(ms)


def parse_ago(text: str, now_ms: int) -> int | None:
    """The ts of a time before now, such as 10m or 2h (ms, s, m, h, d); None for a text of another form. Raises
    ValueError if it lies before the Unix epoch."""
    found = _AGO.fullmatch(text)
    if found is None:
        return None
    ms = now_ms - int(found[1]) * _MS[found[2]]
    if ms < 0:
        raise ValueError(f"{text} ago lies before the Unix epoch")
    return from_physical_ms(ms)
