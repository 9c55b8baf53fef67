"""Measures lag: quantiles of delays in fixed memory, and a series of samples over time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from tistream.model.ts import physical_ms

_FINE_MS = 10_000  # delays up to this one have buckets of 1 ms, longer ones up to an hour of 100 ms
_COARSE_MS = 100
_BUCKETS = _FINE_MS + 36_000
LONGEST_MS = _FINE_MS + (_BUCKETS - 1 - _FINE_MS) * _COARSE_MS  # longer delays share the last bucket


class Delays:
    """A histogram of delays, with a resolution of 1 ms (above 10 s: of 100 ms)."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ms = 0
        self._buckets = array("q", bytes(8 * _BUCKETS))

    def add(self, delay_ms: int, times: int = 1) -> None:
        """Add `times` equal delays. A negative delay, which differing clocks can cause, counts as zero."""
        delay_ms = max(0, delay_ms)
        at = delay_ms if delay_ms < _FINE_MS else _FINE_MS + (delay_ms - _FINE_MS) // _COARSE_MS
        self._buckets[min(at, _BUCKETS - 1)] += times
        self.count += times
        self.max_ms = max(self.max_ms, delay_ms)

    def quantile_ms(self, share: float) -> int:
        """The smallest delay that at least the fraction `share` (0 to 1) of all delays does not exceed, in ms; 0
        without delays."""
        wanted, seen = share * self.count, 0
        for at, times in enumerate(self._buckets):
            seen += times
            if times and seen >= wanted:
                upper = at if at < _FINE_MS else _FINE_MS + (at - _FINE_MS + 1) * _COARSE_MS
                return min(upper, self.max_ms)
        return 0


@dataclass(frozen=True, slots=True)
class LagSample:
    """A measurement of lag: at `at_ms` (wall clock), all changes older than `lag_ms` could be read. `events`: the
    number of events that had been received."""

    at_ms: int
    lag_ms: int
    events: int


@dataclass(frozen=True, slots=True)
class Promise:
    """A statement of the upstream: at `at_ms` (wall clock), it had pushed all files with changes at or below `ts`."""

    at_ms: int
    ts: int

    def encode(self) -> bytes:
        """Encode as one line of JSON, with its newline."""
        return orjson.dumps({"at_ms": self.at_ms, "ts": str(self.ts)}, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def parse(cls, line: bytes) -> Promise:
        """Parse one line of JSON that `encode` has made. Raises ValueError or KeyError if it is malformed."""
        body = orjson.loads(line)
        return cls(int(body["at_ms"]), int(body["ts"]))


def beyond_promises(samples: Sequence[LagSample], promises: Sequence[Promise]) -> list[LagSample]:
    """Subtract the upstream's share of the lag. Each resulting sample has the lag that the platform itself causes: the
    time since the upstream pushed the oldest changes that cannot be read yet.

    The upstream delays its promises while a lock is held, a store is unavailable or a file is lost. This delay is not
    the platform's. `promises` are in order of time.
    """
    known_ms = [physical_ms(promise.ts) for promise in promises]
    own = []
    for sample in samples:
        at = bisect_right(known_ms, sample.at_ms - sample.lag_ms)
        since_ms = promises[at].at_ms if at < len(promises) else sample.at_ms
        own.append(replace(sample, lag_ms=max(0, sample.at_ms - since_ms)))
    return own


def recovered_ms(samples: Sequence[LagSample], since_ms: int, until_ms: int, below_ms: int) -> int | None:
    """Milliseconds from `since_ms` until the lag was below `below_ms` and stayed below it up to `until_ms`. None if the
    last sample in this time was not below it, or if there is no sample."""
    window = [sample for sample in samples if since_ms <= sample.at_ms <= until_ms]
    if not window or window[-1].lag_ms >= below_ms:
        return None
    late = [at for at, sample in enumerate(window) if sample.lag_ms >= below_ms]
    return window[late[-1] + 1].at_ms - since_ms if late else 0
