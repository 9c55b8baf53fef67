"""PD's rules of garbage collection (GC): clients set service safe points or barriers, and these hold back the safe
point of the cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

NULL_KEYSPACE = 0xFFFFFFFF
WORKER = "gc_worker"  # TiDB's own service id


@dataclass(frozen=True, slots=True)
class Hold:
    """A service safe point or a barrier; PD treats both alike. No GC goes above `ts` until `ends_ms`, in ms of PD's
    clock."""

    ts: int
    ends_ms: int


@dataclass(slots=True)
class GcState:
    """The state of PD's garbage collection: holds by name, and the safe points. Timestamps are TSO."""

    txn_safe_point: int = 0
    safe_point: int = 0
    holds: dict[str, Hold] = field(default_factory=dict)

    def live(self, now_ms: int) -> dict[str, Hold]:
        """Drop the holds that have ended, and return the others."""
        self.holds = {name: hold for name, hold in self.holds.items() if hold.ends_ms > now_ms}
        return self.holds

    def lowest(self, now_ms: int) -> int:
        """The lowest ts of the holds that have not ended, but at least the transaction safe point, which is also the
        result if there is no hold."""
        return max(
            self.txn_safe_point, min((hold.ts for hold in self.live(now_ms).values()), default=self.txn_safe_point)
        )

    def update_service(self, name: str, ttl_s: int, ts: int, now_ms: int) -> int:
        """Answer UpdateServiceGCSafePoint: set the hold `name` at `ts` for `ttl_s` seconds, or remove it if `ttl_s` is
        not positive. Returns min_safe_point. If it is above `ts`, the hold was refused."""
        if ttl_s <= 0:
            self.holds.pop(name, None)
            return self.lowest(now_ms)
        if ts < self.txn_safe_point:
            return self.lowest(now_ms)
        self.holds[name] = Hold(ts, now_ms + ttl_s * 1_000)
        return self.lowest(now_ms)

    def set_barrier(self, name: str, ts: int, ttl_s: int, now_ms: int) -> bool:
        """Answer SetGCBarrier. Returns False, and sets nothing, if `ts` is below the transaction safe point."""
        if ts < self.txn_safe_point:
            return False
        self.holds[name] = Hold(ts, now_ms + ttl_s * 1_000)
        return True

    def run(self, target: int, now_ms: int) -> int:
        """Run one round of GC up to `target` or the lowest hold. Returns the new safe point, which never decreases."""
        held = min((hold.ts for hold in self.live(now_ms).values()), default=target)
        self.txn_safe_point = max(self.txn_safe_point, min(target, held))
        self.safe_point = self.txn_safe_point
        return self.safe_point
