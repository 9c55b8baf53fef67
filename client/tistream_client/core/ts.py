"""Timestamps of TiDB (TSO) as times, and back. A TSO is `milliseconds since the Unix epoch << 18 | counter`."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_LOGICAL_BITS = 18
MAX_TS = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def to_datetime(ts: int) -> datetime:
    """The time of a TSO, in UTC, to the millisecond. Raises OverflowError for a time after the year 9999."""
    return _EPOCH + timedelta(milliseconds=ts >> _LOGICAL_BITS)


def to_ts(time: datetime) -> int:
    """The first TSO of the millisecond of `time`. Raises ValueError for a time without a zone, or before 1970."""
    if time.utcoffset() is None:
        raise ValueError(f"{time!r} has no zone; right: datetime.now(timezone.utc)")
    ms = (time - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= ms <= MAX_TS >> _LOGICAL_BITS:
        raise ValueError(f"{time.isoformat()} lies outside the times of a TSO, which begin in 1970")
    return ms << _LOGICAL_BITS
