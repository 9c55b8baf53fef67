"""The interface through which a shard reads the committed rows of a tenant (its pool). TenantView implements it."""

from __future__ import annotations

from typing import Protocol

from tistream.pool.versions.plan import IndexShard
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource


class Pool(Protocol):
    """The committed rows of a tenant, and the ts up to which they are complete."""

    @property
    def source(self) -> TenantSource:
        """The object that reads rows and schemas."""

    def resolved_ts(self) -> int:
        """The ts up to which (inclusive) everything can be read now. It never decreases."""

    def wait_fresh(self) -> None:
        """Wait until the newest progress of the tenant has been read, but only for a moment."""

    def check_known(self) -> None:
        """Check that the tenant exists and can be read. Raises Unavailable, UnknownName."""

    def check_served(self, ts: int) -> None:
        """Check that the changes above `ts` are still stored and readable. Raises Gone."""

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        """Wait until resolved_ts > `ts`, `timeout_ms` have passed, or the service stops. Returns whether resolved_ts >
        `ts`."""

    def shards(self) -> list[IndexShard]:
        """The segments and runs with the committed versions of all rows, in key order."""

    def replan(self) -> None:
        """Refresh `shards`, because an object that they name has disappeared."""

    def record_barrier(self, barrier: Barrier) -> None:
        """Record that a reader has come to `barrier`, which is a row that cannot be decoded."""
