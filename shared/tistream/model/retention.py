"""Parses the retention in a request: how long a tenant's committed rows are kept."""

from __future__ import annotations

import re

from tistream.errors import InvalidRequest

RETENTION_MIN_MS = 3_600_000  # an hour, so that consumers have time to pull
RETENTION_MAX_MS = 36_500 * 86_400_000  # 100 years; a larger value is probably in the wrong unit
_DIGITS = re.compile(r"[0-9]{1,19}")


def parse_retention_ms(text: str | None) -> int | None:
    """Parse a retention in decimal milliseconds. None means that rows are kept for ever, and is returned unchanged.
    Raises InvalidRequest."""
    if text is None:
        return None
    extra = {"parameter": "retention_ms"}
    if not _DIGITS.fullmatch(text):
        raise InvalidRequest(f"retention_ms {text[:80]!r} is not a decimal number of milliseconds", extra)
    if not RETENTION_MIN_MS <= (found := int(text)) <= RETENTION_MAX_MS:
        bounds = f"at least {RETENTION_MIN_MS} (an hour) and at most {RETENTION_MAX_MS} (100 years)"
        raise InvalidRequest(f"retention_ms {text!r}: it must be {bounds}, or null for ever", extra)
    return found
