"""A pull whose caller is looked at again and again: it ends when the token does, and waits when too much was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.concurrency import sleep
from tistream_api.admission.tenant_limits import Tenant, TenantLimits
from tistream_api.encode.piece import Piece
from tistream_api.pull.answer import Progress
from tistream_api.read.row_events import Barrier

LOOK_MS = 500  # how soon the end of a token is noticed


@dataclass(slots=True)
class Watched:
    """How far a tenant can be read, by somebody who may for as long as `still` says so."""

    progress: Progress
    still: Callable[[], bool]
    clock: Clock
    waited_ms: int = 0  # for what has not come yet

    def resolved_ts(self) -> int:
        """See Progress."""
        return self.progress.resolved_ts()

    def met(self, barrier: Barrier) -> None:
        """See Progress."""
        self.progress.met(barrier)

    def stopping(self) -> bool:
        """The service is about to end, or its answers to this caller are."""
        return self.progress.stopping() or not self.still()

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        """See Progress; in pieces, with a look at the caller between them."""
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
class Metered:
    """What is sent of an answer, at no more than the tenant's rate."""

    watched: Watched
    limits: TenantLimits
    tenant: Tenant
    slowed_ms: int = 0  # by the tenant's rate

    def pieces(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The same, slower."""
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
