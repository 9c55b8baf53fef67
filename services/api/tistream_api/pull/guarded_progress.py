"""Ends a pull when its caller's token becomes invalid, and slows it down to the tenant's byte rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.concurrency import sleep
from tistream.read.row_events import Barrier
from tistream_api.admission.tenant_limits import Tenant, TenantLimits
from tistream_api.encode.piece import Piece
from tistream_api.pull.answer import PullableProgress

LOOK_MS = 500  # interval of the checks: how soon an expired or revoked token is noticed


@dataclass(slots=True)
class GuardedProgress:
    """The progress of a tenant for one caller. The pull must end once `still` returns False, because the caller may no
    longer read."""

    progress: PullableProgress
    still: Callable[[], bool]
    clock: Clock
    waited_ms: int = 0  # total time spent waiting for new events

    def resolved_ts(self) -> int:
        """Implement PullableProgress.resolved_ts: the ts up to which everything can be read now."""
        return self.progress.resolved_ts()

    def record_barrier(self, barrier: Barrier) -> None:
        """Implement PullableProgress.record_barrier: record a row that cannot be decoded and blocks a pull."""
        self.progress.record_barrier(barrier)

    def stopping(self) -> bool:
        """Whether the service is stopping or the caller's token is no longer valid."""
        return self.progress.stopping() or not self.still()

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        """Implement PullableProgress.wait_above: wait until resolved_ts > `ts`, `timeout_ms` have passed, or the
        service stops. Waits in steps of LOOK_MS, and checks the caller between them."""
        began_ms = self.clock.monotonic_ms()
        try:
            return self._wait_above(ts, began_ms + timeout_ms)
        finally:
            self.waited_ms += self.clock.monotonic_ms() - began_ms

    def _wait_above(self, ts: int, until_ms: int) -> bool:
        while True:
            left_ms = until_ms - self.clock.monotonic_ms()
            if self.progress.wait_above(ts, max(0, min(LOOK_MS, left_ms))):
                return True
            if left_ms <= LOOK_MS or self.stopping():
                return False


@dataclass(slots=True)
class RateLimitedPieces:
    """Yields the pieces of an answer no faster than the tenant's byte rate."""

    watched: GuardedProgress
    limits: TenantLimits
    tenant: Tenant
    slowed_ms: int = 0  # total time that the rate limit has added

    def pieces(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Yield the same pieces, slowed down to the rate."""
        for piece in pieces:
            yield piece
            self._wait(self.limits.sent(self.tenant, len(piece)))

    def _wait(self, seconds: float) -> None:
        clock = self.watched.clock
        began_ms = clock.monotonic_ms()
        until_ms = began_ms + seconds * 1000
        while (left_ms := until_ms - clock.monotonic_ms()) > 0 and not self.watched.stopping():
            sleep(min(LOOK_MS, left_ms) / 1000)
        self.slowed_ms += clock.monotonic_ms() - began_ms
