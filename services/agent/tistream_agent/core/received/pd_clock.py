"""Estimates PD's clock from the timestamps that PD has issued. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tistream.model.ts import MAX_TS, from_physical_ms, physical_ms

_STALE_MS = 30_000  # within which two clocks drift apart by some 15 ms
_HELD_MS = 2_000  # between two calls while late locks hold files back
_AHEAD_MS = 3_600_000  # what a timestamp may be above PD's clock, which is only estimated


@dataclass(slots=True)
class PdClock:
    """Bounds of how far PD's clock is ahead of the caller's, in ms (negative: behind); None before the first call.
    `_least_ms`, the lower bound, assumes that PD issued a timestamp just when its answer arrived; the highest value of
    all calls counts. `_most_ms`, the upper bound, assumes that PD issued it when it was asked; the value of the last
    call counts. `_asked_ts`: the value of `ts_now` when the newest call, `_call`, was made."""

    _least_ms: int | None = None
    _most_ms: int | None = None
    _asked_ms: int = 0
    _call: int = 0
    _asked_ts: int = 0

    def asked(self, calls: Sequence[int], now_ms: int) -> None:
        """Record that PD was asked for timestamps by these calls: one at most, because only one is under way."""
        for call in calls:
            self._call, self._asked_ts, self._asked_ms = call, self.ts_now(now_ms), now_ms

    def estimate_of(self, call: int) -> int:
        """The value of `ts_now` when this call was made; 0 if another one was made since."""
        return self._asked_ts if call == self._call else 0

    def answered(self, ts: int, now_ms: int) -> None:
        """Record that PD has answered with timestamps up to `ts`."""
        least_ms = physical_ms(ts) - now_ms
        self._least_ms = least_ms if self._least_ms is None else max(self._least_ms, least_ms)
        self._most_ms = physical_ms(ts) - self._asked_ms

    def is_stale(self, now_ms: int, held: Callable[[], bool]) -> bool:
        """Whether PD should be asked for a timestamp again, because the last call is long ago. `held`: whether late
        locks hold files back. Then the call may show that PD's clock is slower than it was estimated to be."""
        age_ms = now_ms - self._asked_ms
        return age_ms >= _STALE_MS or (age_ms >= _HELD_MS and held())

    def ts_max(self, now_ms: int) -> int:
        """A timestamp that PD cannot have exceeded yet, even if the clocks run apart."""
        return MAX_TS if self._least_ms is None else from_physical_ms(now_ms + self._least_ms + _AHEAD_MS)

    def ts_now(self, now_ms: int) -> int:
        """A timestamp that PD has not exceeded yet, unless its clock leaps."""
        return MAX_TS if self._most_ms is None else from_physical_ms(now_ms + self._most_ms + 1)
