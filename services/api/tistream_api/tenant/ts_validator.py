"""Checks that a ts in a request can be read: it is retained, and resolved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.errors import InvalidRequest, Unavailable
from tistream.follow.tenant_view import TenantView
from tistream.model.ts import from_physical_ms
from tistream_api.request.point_queries import When


@dataclass(slots=True)
class TsValidator:
    """Checks that a ts can be read. If the ts is not resolved yet, it waits for that, at most `wait_ms`."""

    clock: Clock
    wait_ms: int

    def readable(
        self,
        view: TenantView,
        name: str,
        ts: When,
        check: Callable[[TenantView, int], None] = TenantView.check_served,
    ) -> int:
        """Check the ts of the parameter `name`, and return it as a number; "now" is resolved_ts. `check` refuses a ts
        that is too low.

        Raises:
            Gone: the ts lies below the earliest one that is kept.
            InvalidRequest: it lies in the future.
            Unavailable: it is not resolved yet.
        """
        if isinstance(ts, int):
            check(view, ts)
        view.check_known()
        resolved_ts = view.resolved_ts()
        if not isinstance(ts, int):
            return resolved_ts
        if ts > max(resolved_ts, from_physical_ms(self.clock.now_ms() + 1) - 1):
            raise InvalidRequest(
                f"{name} {ts} lies in the future: use at most the present, such as resolved_ts {resolved_ts}",
                {"parameter": name},
            )
        if ts > resolved_ts and not view.wait_above(ts - 1, self.wait_ms):
            raise Unavailable(
                f"{name} {ts} is not resolved yet: retry once resolved_ts, now {view.resolved_ts()}, has reached it"
            )
        return ts

    def wait_resolved(self, view: TenantView, name: str, start_ts: int) -> None:
        """Wait until start_ts, the value of the parameter `name`, is resolved: before that, a transaction with this
        start_ts may still commit. Raises InvalidRequest and Unavailable, as `readable` does."""
        if start_ts > view.resolved_ts():
            self.readable(view, name, start_ts)
