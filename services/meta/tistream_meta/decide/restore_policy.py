"""Decides which restore a process may run, and which reports are accepted. Pure.

A restore is queued, then running, then done, failed or cancelled. A process claims a restore under an epoch, with a
lease. After the lease has expired, another process may claim the restore under the next epoch, and reports of the
earlier claim are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tistream.errors import ClaimEnded, LimitReached
from tistream.model.ids import TenantKey
from tistream.wire.bulk.restores import State

UNFINISHED_MAX = 4  # of a tenant
KEPT_MAX = 100  # ended restores of a tenant that are listed
LEASE_MS = 30_000
UNFINISHED: tuple[State, ...] = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Restore:
    """A row of the table `restores`. `wanted` is a NewRestore as JSON, and `tables` a list of RestoreTable as JSON.
    `lease_until_ms` is Unix time by the database's clock."""

    tenant: TenantKey
    restore_id: str
    state: State
    epoch: int
    node_id: str | None
    lease_until_ms: int
    created_ms: int
    wanted: str
    tables: str
    reason: str | None

    @property
    def unfinished(self) -> bool:
        """Whether the restore is queued or running."""
        return self.state in UNFINISHED


def check_room(of_tenant: Iterable[Restore], key: TenantKey) -> None:
    """Check that the tenant may queue another restore. Raises LimitReached if it has UNFINISHED_MAX unfinished ones."""
    unfinished = [one.restore_id for one in of_tenant if one.unfinished]
    if len(unfinished) >= UNFINISHED_MAX:
        raise LimitReached(
            f"tenant {key} has {len(unfinished)} restores that wait or run (at most {UNFINISHED_MAX}): wait for one, "
            "or cancel one"
        )


def surplus(of_tenant: Iterable[Restore]) -> list[Restore]:
    """The ended restores above the limit KEPT_MAX, oldest first; they may be deleted."""
    ended = sorted((one for one in of_tenant if not one.unfinished), key=lambda one: (one.created_ms, one.restore_id))
    return ended[: max(0, len(ended) - KEPT_MAX)]


def next_claim(restores: Iterable[Restore], now_ms: int) -> Restore | None:
    """The restore that a process may claim next: the oldest that is queued, or whose lease has expired at `now_ms`;
    None if there is no such restore."""
    free = (
        one for one in restores if one.state == "queued" or (one.state == "running" and one.lease_until_ms < now_ms)
    )
    return min(free, key=lambda one: (one.created_ms, one.tenant, one.restore_id), default=None)


def check_report(one: Restore, epoch: int) -> None:
    """Check that a report may be applied. `epoch`: the claim under which it was made. Raises ClaimEnded if another
    process has claimed the restore since, or if the restore has ended."""
    if one.epoch != epoch:
        raise ClaimEnded(f"restore {one.restore_id} was claimed under epoch {one.epoch}: the claim {epoch} has ended")
    if not one.unfinished:
        raise ClaimEnded(f"restore {one.restore_id} is {one.state}")
