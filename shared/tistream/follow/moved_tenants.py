"""Which tenants' tasks have moved since each tenant was last refreshed. Each sorter is asked once for all tenants."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import TenantRoute

log = logging.getLogger(__name__)

ASK_MS = 2_000  # pause between two requests to a sorter: feeds learn of their first row after a rest in this time


@dataclass(slots=True)
class _Sorter:
    """A sorter, and its tenants according to the routes. `due_ms`: the time at which it must be asked (monotonic); None
    while it is being asked. `boot`, `version`: those of its last answer (ProgressPage)."""

    due_ms: int | None
    boot: str = ""
    version: int = 0
    tenants: set[TenantKey] = field(default_factory=set)


class MovedTenants:
    """The tenants that have moved: the progress of one of their tasks has changed since the tenant was last refreshed,
    or a sorter has not answered. Thread-safe."""

    def __init__(self, sorters: SorterClient, clock: Clock) -> None:
        self._client, self._clock = sorters, clock
        self._lock = new_lock()
        self._sorters: dict[str, _Sorter] = {}
        self._moved: set[TenantKey] = set()

    def follow(self, routes: Iterable[TenantRoute]) -> None:
        """Set the sorters that `take_due` returns from now on: those of these routes, and no others. A new one is due
        at once."""
        found: dict[str, set[TenantKey]] = defaultdict(set)
        for route in routes:
            for task in route.tasks:
                if task.sorter_url is not None:
                    found[task.sorter_url].add(TenantKey(route.cluster_id, route.tenant_id))
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            self._sorters = {url: self._sorters.get(url) or _Sorter(now_ms) for url in found}
            for url, sorter in self._sorters.items():
                sorter.tenants = found[url]

    def add(self, key: TenantKey) -> None:
        """Count a tenant as moved. The caller does so when the tenant's route has changed."""
        with self._lock:
            self._moved.add(key)

    def discard(self, key: TenantKey) -> None:
        """Count a tenant as not moved. The caller does so before it refreshes the tenant; a change after this call
        counts again."""
        with self._lock:
            self._moved.discard(key)

    def current(self) -> frozenset[TenantKey]:
        """The tenants that have moved."""
        with self._lock:
            return frozenset(self._moved)

    def take_due(self) -> list[str]:
        """The URLs of the sorters that must be asked now. The caller must pass each of them to `ask`; until then, no
        other call returns it."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            due = [url for url, one in self._sorters.items() if one.due_ms is not None and one.due_ms <= now_ms]
            for url in due:
                self._sorters[url].due_ms = None
            return due

    def pause_ms(self) -> int:
        """The ms until the next sorter must be asked, ASK_MS at most."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            asked_ms = now_ms + ASK_MS  # a sorter that is being asked is not due before
            due = (asked_ms if one.due_ms is None else one.due_ms for one in self._sorters.values())
            return max(0, min(due, default=asked_ms) - now_ms)

    def ask(self, url: str) -> bool:
        """Request from a sorter the tasks whose progress has changed since its last answer, and count their tenants as
        moved. If it does not answer, all its tenants count as moved. The sorter is due again after ASK_MS. Returns
        whether this call has counted a tenant as moved."""
        with self._lock:
            known = self._sorters.get(url)
            if known is None:
                return False
            boot, version = known.boot, known.version
        moved: set[TenantKey] | None = None
        try:
            page = self._client.progress(url, boot, version)
            boot, version = page.boot, page.version
            moved = {TenantKey(one.cluster_id, one.tenant_id) for one in page.tasks}
        except TiStreamError as error:  # or a sorter of an older version, which has no such call
            log.debug("no progress from a sorter", extra={"url": url, "error": str(error)})
        except Exception as error:  # an unexpected fault: the sorter is asked again
            log.error("the request for progress failed", exc_info=error, extra={"url": url})
        with self._lock:
            found = known.tenants if moved is None else moved & known.tenants
            self._moved |= found
            known.boot, known.version = boot, version
            known.due_ms = self._clock.monotonic_ms() + ASK_MS
        return bool(found)
