"""The threads of the shards that have something to do. A shard that rests has none: one loop looks at the pools of all
that rest, because a worker may hold hundreds of idle feeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.concurrency import Lock, new_lock, start_thread
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream_changefeed.hold.fresh import Fresh
from tistream_changefeed.hold.holder import Holder, Rest


@dataclass(slots=True)
class Crew:
    """Runs holders. `look` is a loop's body; the other calls are for any thread."""

    clock: Clock
    _resting: dict[Holder, Rest] = field(default_factory=dict)
    _seen: dict[TenantKey, int] = field(default_factory=dict)  # up to where the pools were looked at
    _lock: Lock = field(default_factory=new_lock)

    def begin(self, holder: Holder) -> None:
        """Let a holder work."""
        start_thread(f"feed-{holder.shard.order.feed_id}", lambda: self._work(holder))

    def end(self, holder: Holder) -> None:
        """Ask a holder to leave its sink and end."""
        holder.stop()
        self._wake(holder)

    def look(self) -> None:
        """Let those go on that rest and have something to do."""
        with self._lock:
            resting = list(self._resting.items())
        fresh: dict[TenantKey, Fresh | None] = {}
        now_ms = self.clock.monotonic_ms()
        for holder, rest in resting:
            tenant = holder.shard.order.tenant
            if tenant not in fresh:
                fresh[tenant] = self._fresh(tenant, holder)
            if holder.is_due(rest, now_ms, fresh[tenant]):
                self._wake(holder)
        self._seen = {tenant: one.window.high for tenant, one in fresh.items() if one is not None}

    def _fresh(self, tenant: TenantKey, holder: Holder) -> Fresh | None:
        """What has come into a pool since the last look; None if the pool is not there."""
        try:
            pool = holder.view()
            high = pool.resolved_ts()
        except TiStreamError:
            return None
        return Fresh(pool.source, Window(min(self._seen.get(tenant, high), high), high))

    def _wake(self, holder: Holder) -> None:
        with self._lock:
            if self._resting.pop(holder, None) is None:
                return  # it works, and sees for itself that it is to end
        self.begin(holder)

    def _work(self, holder: Holder) -> None:
        while True:
            rest = holder.run()
            with self._lock:
                if rest is None:
                    return
                if not holder.stopping:
                    self._resting[holder] = rest
                    return
