"""Files whose row groups failed their checks: not there yet, then damaged (design.md 2). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tistream.wire.sorter import Hold

GRACE_MS = 2_000  # a file may still be under way
RETRY_MS = (500, 1_000, 2_000, 5_000)


@dataclass(frozen=True, slots=True)
class Damaged:
    """One file that could not be read. Its store's files are not taken before `retry_ms`."""

    store_id: int
    ts: int
    key: str
    reason: str
    first_ms: int
    tries: int
    retry_ms: int


@dataclass(slots=True)
class Damages:
    """At most one damaged file per store: what is behind it waits."""

    by_store: dict[int, Damaged] = field(default_factory=dict)

    def note(self, store_id: int, ts: int, key: str, reason: str, now_ms: int) -> None:
        """A file could not be read, again or for the first time."""
        known = self.by_store.get(store_id)
        if known is None or known.key != key:
            known = Damaged(store_id, ts, key, reason, now_ms, 0, now_ms)
        pause = RETRY_MS[min(known.tries, len(RETRY_MS) - 1)]
        self.by_store[store_id] = replace(known, reason=reason, tries=known.tries + 1, retry_ms=now_ms + pause)

    def refuses(self, store_id: int, now_ms: int) -> bool:
        """Whether the store's files are not taken just now."""
        known = self.by_store.get(store_id)
        return known is not None and now_ms < known.retry_ms

    def taken(self, store_id: int, ts: int) -> None:
        """A file was taken after all, or a later one of a new chain."""
        known = self.by_store.get(store_id)
        if known is not None and ts >= known.ts:
            del self.by_store[store_id]

    def holds(self, now_ms: int) -> list[Hold]:
        """Those that are damaged for sure by now."""
        return [
            Hold(stage="damaged", store_id=str(known.store_id), object=known.key, reason=known.reason)
            for known in self.by_store.values()
            if now_ms - known.first_ms >= GRACE_MS
        ]
