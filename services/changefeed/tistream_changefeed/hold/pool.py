"""The interface through which a holder reads a tenant's pool. TenantView implements it."""

from __future__ import annotations

from typing import Protocol

from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource


class Pool(Protocol):
    """The committed rows of a tenant, and the ts up to which they are complete."""

    @property
    def source(self) -> TenantSource:
        """The source of rows and schemas."""

    def resolved_ts(self) -> int:
        """The ts up to which (inclusive) everything can be read now. It never decreases."""

    def wait_fresh(self) -> None:
        """Wait a moment until the newest progress has been read."""

    def check_known(self) -> None:
        """Check that the tenant exists and can be read. Raises Unavailable, UnknownName."""

    def check_retained(self, ts: int) -> None:
        """Check that changes above `ts` are kept and served. Raises Gone."""

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        """Wait until resolved_ts > `ts`, or `timeout_ms` have passed. Returns whether resolved_ts > `ts`."""

    def met(self, barrier: Barrier) -> None:
        """Record a row that cannot be decoded."""
