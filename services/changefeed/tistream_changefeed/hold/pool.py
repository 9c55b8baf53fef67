"""What a holder needs of a tenant's committed pool. TenantView is one."""

from __future__ import annotations

from typing import Protocol

from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource


class Pool(Protocol):
    """The committed rows of a tenant, and how far they are complete."""

    @property
    def source(self) -> TenantSource:
        """The rows and the schema."""

    def resolved_ts(self) -> int:
        """Everything at or below it can be read now. It never decreases."""

    def wait_fresh(self) -> None:
        """Wait a moment for the newest progress."""

    def check_known(self) -> None:
        """Check that something can be read. Raises Unavailable, UnknownName."""

    def check_retained(self, ts: int) -> None:
        """Check that changes above `ts` are kept and served. Raises Gone."""

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        """Wait until resolved_ts > `ts`, or the time has passed. Returns whether it is above."""

    def met(self, barrier: Barrier) -> None:
        """Record a row that cannot be decoded."""
