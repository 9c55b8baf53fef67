"""Gives a thread to each shard that has something to do. An idle shard has no thread, because a worker may hold
hundreds of idle feeds; one loop checks whether their tenants have new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.concurrency import Lock, new_lock, start_thread
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream_changefeed.hold.holder import Holder, IdleUntil
from tistream_changefeed.hold.new_rows import NewRows

NONE_MS = 5_000


@dataclass(slots=True)
class HolderThreads:
    """Starts threads for holders, each of which runs a shard, and remembers the idle ones. A background loop calls
    `start_due`; any thread may call the other methods. `on_rest` is called when a holder becomes idle and no
    other one is: it calls `start_due` now."""

    clock: Clock
    on_rest: Callable[[], None] = lambda: None
    _resting: dict[Holder, IdleUntil] = field(default_factory=dict)
    _seen: dict[TenantKey, int] = field(default_factory=dict)  # up to where the pools were looked at
    _lock: Lock = field(default_factory=new_lock)

    def begin(self, holder: Holder) -> None:
        """Start a thread that runs a holder."""
        start_thread(f"feed-{holder.shard.order.feed_id}", lambda: self._work(holder))

    def end(self, holder: Holder) -> None:
        """Ask a holder to close its sink and end. An idle holder gets a thread for that."""
        holder.stop()
        self._wake(holder)

    def start_due(self) -> int | None:
        """Start a thread for each idle holder that has something to do now. Returns the ms until the next call:
        NONE_MS if there is no idle holder; None: the interval of the loop."""
        with self._lock:
            resting = list(self._resting.items())
        fresh: dict[TenantKey, NewRows | None] = {}
        now_ms = self.clock.monotonic_ms()
        for holder, rest in resting:
            tenant = holder.shard.order.tenant
            if tenant not in fresh:
                fresh[tenant] = self._fresh(tenant, holder)
            if holder.is_due(rest, now_ms, fresh[tenant]):
                self._wake(holder)
        self._seen = {tenant: one.window.high for tenant, one in fresh.items() if one is not None}
        return None if resting else NONE_MS

    def _fresh(self, tenant: TenantKey, holder: Holder) -> NewRows | None:
        """The rows that were added to a tenant since the last call of `start_due`; None if the tenant cannot be
        read."""
        try:
            pool = holder.view()
            high = pool.resolved_ts()
        except TiStreamError:
            return None
        return NewRows(pool.source, Window(min(self._seen.get(tenant, high), high), high))

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
                    alone = not self._resting
                    self._resting[holder] = rest
                    break
        if alone:
            self.on_rest()
