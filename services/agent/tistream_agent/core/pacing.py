"""Limits how many registrations (requests to subscribe to a region) are under way at a TiKV store, and computes pauses
before retries (upstream-formats 6.6). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

START, MOST, LEAST = 16, 100, 1
PD_COALESCE_MS = 50  # one region scan serves a burst of errors
HOLE_WAIT_MS = 100
NOT_LEADER_WAIT_MS = 20
NOT_FOUND_MS = (20, 2_000)
BUSY_MS = (50, 5_000)
BUSY_STATED_MS = 60_000  # the longest pause for which a store may ask
RECONNECT_MS = (100, 3_000)


def doubled(bounds: tuple[int, int], failures: int) -> int:
    """The pause in milliseconds after `failures` failures in a row (at least 1): the lower bound, doubled after each
    further failure, up to the upper bound."""
    least, most = bounds
    return min(most, least << min(max(failures, 1) - 1, 20))


@dataclass(slots=True)
class StorePace:
    """The registrations of one TiKV store, and the limit of those that may be under way. The limit grows by one with
    each scan that ends, and is halved if TiKV is busy or congested."""

    limit: int = START
    outstanding: set[int] = field(default_factory=set)
    failures: int = 0  # streams that ended before a scan did, in a row
    not_before_ms: int = 0  # when a stream may be opened again

    @property
    def room(self) -> int:
        """The number of further registrations that may be sent now."""
        return max(0, self.limit - len(self.outstanding))

    def sent(self, request_id: int) -> None:
        """Record that a registration has been sent."""
        self.outstanding.add(request_id)

    def scanned(self, request_id: int) -> None:
        """Record that the scan of a registration has ended, and raise the limit by one. A registration that is not
        under way is ignored."""
        if request_id in self.outstanding:
            self.outstanding.remove(request_id)
            self.limit = min(MOST, self.limit + 1)
            self.failures = 0

    def ended(self, request_id: int) -> None:
        """Record that a subscription has ended, before or after the end of its scan."""
        self.outstanding.discard(request_id)

    def congested(self) -> None:
        """Record that TiKV is busy or congested: halve the limit."""
        self.limit = max(LEAST, self.limit // 2)

    def disconnected(self, now_ms: int) -> None:
        """Record that the stream to the store has ended, and all its registrations with it. A new stream may be opened
        after a pause, which doubles with each such end in a row."""
        self.outstanding.clear()
        self.failures += 1
        self.not_before_ms = now_ms + doubled(RECONNECT_MS, self.failures)
