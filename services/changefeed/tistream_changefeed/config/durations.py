"""Parses durations of a configuration. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from tistream_changefeed.config.listed import refused

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNIT_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


class Bounds(NamedTuple):
    """The limits of a duration in ms, both inclusive, and how an error names them."""

    low: int
    high: int
    shown: str


def duration_ms(key: str, text: str, bounds: Bounds) -> int:
    """Parse a duration as Go writes it, such as 1m30s, and return its ms. Raises InvalidRequest, which names the
    key, if the text is not a duration or lies outside `bounds`."""
    found = _DURATION.findall(text)
    if not found or "".join(number + unit for number, unit in found) != text:
        raise refused(f"{key} = {text[:40]!r} is not a duration, such as 5s or 1m30s")
    ms = round(sum(float(number) * _UNIT_MS[unit] for number, unit in found))
    if not bounds.low <= ms <= bounds.high:
        raise refused(f"{key} = {text[:40]!r} does not lie from {bounds.shown}")
    return ms
