"""How late things are: quantiles of many delays in fixed memory, and a time series."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from tistream.model.ts import physical_ms

_FINE_MS = 10_000  # 1 ms buckets up to here, then 100 ms up to an hour
_COARSE_MS = 100
_BUCKETS = _FINE_MS + 36_000
LONGEST_MS = _FINE_MS + (_BUCKETS - 1 - _FINE_MS) * _COARSE_MS  # quantiles from here on are not told apart


class Delays:
    """Quantiles to the millisecond (above 10 s: to a tenth of a second)."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ms = 0
        self._buckets = array("q", bytes(8 * _BUCKETS))

    def add(self, delay_ms: int, times: int = 1) -> None:
        """`times` equal delays; one below zero (clocks differ) counts as zero."""
        delay_ms = max(0, delay_ms)
        at = delay_ms if delay_ms < _FINE_MS else _FINE_MS + (delay_ms - _FINE_MS) // _COARSE_MS
        self._buckets[min(at, _BUCKETS - 1)] += times
        self.count += times
        self.max_ms = max(self.max_ms, delay_ms)

    def quantile_ms(self, share: float) -> int:
        """The delay that `share` (0 to 1) of all do not exceed; 0 if there is none."""
        wanted, seen = share * self.count, 0
        for at, times in enumerate(self._buckets):
            seen += times
            if times and seen >= wanted:
                upper = at if at < _FINE_MS else _FINE_MS + (at - _FINE_MS + 1) * _COARSE_MS
                return min(upper, self.max_ms)
        return 0


@dataclass(frozen=True, slots=True)
class LagSample:
    """At `at_ms` (wall clock) everything up to `lag_ms` before could be read."""

    at_ms: int
    lag_ms: int
    events: int


@dataclass(frozen=True, slots=True)
class Promise:
    """At `at_ms` (wall clock) the upstream's files were there that promise everything at or below `ts`."""

    at_ms: int
    ts: int

    def encode(self) -> bytes:
        """One line of JSON, with its newline."""
        return orjson.dumps({"at_ms": self.at_ms, "ts": str(self.ts)}, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def parse(cls, line: bytes) -> Promise:
        """Read one line. Raises ValueError or KeyError if it is none."""
        body = orjson.loads(line)
        return cls(int(body["at_ms"]), int(body["ts"]))


def beyond_promises(samples: Sequence[LagSample], promises: Sequence[Promise]) -> list[LagSample]:
    """The same samples with the lag that is the platform's own: since when what cannot be read yet has been promised.

    An upstream holds its promises back while a lock is there, a store is away or a file is lost: no platform can be
    earlier than that. `promises` in the order of time; the first one is the earliest that is known.
    """
    known_ms = [physical_ms(promise.ts) for promise in promises]
    own = []
    for sample in samples:
        at = bisect_right(known_ms, sample.at_ms - sample.lag_ms)
        since_ms = promises[at].at_ms if at < len(promises) else sample.at_ms
        own.append(replace(sample, lag_ms=max(0, sample.at_ms - since_ms)))
    return own


def recovered_ms(samples: Sequence[LagSample], since_ms: int, until_ms: int, below_ms: int) -> int | None:
    """How long after `since_ms` the lag was below `below_ms` for good, as far as `until_ms` can tell; None: not yet."""
    window = [sample for sample in samples if since_ms <= sample.at_ms <= until_ms]
    if not window or window[-1].lag_ms >= below_ms:
        return None
    late = [at for at, sample in enumerate(window) if sample.lag_ms >= below_ms]
    return window[late[-1] + 1].at_ms - since_ms if late else 0
