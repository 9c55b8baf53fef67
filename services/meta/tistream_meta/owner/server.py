"""One meta server process: the calls that every meta server answers, and access to the work of the owner.

Every meta server reads the database and has the routes. The owner is elected by a lease (election.py). The owner's work
is in owner_calls.py, and is reached only through `MetaServer.owned`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from tistream.clock import Clock
from tistream.concurrency import new_rlock
from tistream.errors import Unavailable
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Change, Owner, Store, Tenant
from tistream_meta.decide.options import Options
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.election import Ownership
from tistream_meta.owner.owner_calls import OwnerCalls
from tistream_meta.owner.route_board import RouteBoard
from tistream_meta.owner.store_rules import StoreRules
from tistream_meta.tenants.tenant_rules import TenantRules

log = logging.getLogger(__name__)

FOLLOW_WAIT_MS = 10_000  # long polls of the owner's routes
FOLLOW_PAUSE_MS = 200
OWNER_PAUSE_MS = 5_000  # of an owner, which has no routes to copy


class MetaServer:
    """One meta server process, whether it is the owner or not. `owned()` returns the calls that only the owner answers.
    Thread-safe."""

    def __init__(
        self,
        repository: Repository,
        objects: ObjectStore,
        clock: Clock,
        metrics: MetaMetrics,
        options: Options,
        new_client: Callable[[str], MetaClient],
    ) -> None:
        self._repository, self._metrics = repository, metrics
        self._prepared = False
        self._wake_follow: Callable[[], None] = lambda: None  # calls `follow_owner` now
        self._routes = RouteBoard(clock)
        lock = new_rlock()
        self._ownership = Ownership(
            repository, clock, lock, options.lease_ms, options.own_url, new_client, self._begin, metrics
        )
        self._work = OwnerCalls(
            repository,
            objects,
            clock,
            metrics,
            options,
            self._routes,
            lock,
            self._ownership,
            self._require_owner,
        )
        self.tenant_rules = TenantRules(repository, options, self.write)
        self.store_rules = StoreRules(repository, objects, self.write)

    # -- the owner -----------------------------------------------------------------------------------------------

    def owned(self) -> OwnerCalls:
        """The OwnerCalls of this process, which only the owner may use. Raises Unavailable if this process is not the
        owner, or has not read its copy of the database yet."""
        self._require_owner()
        return self._work

    def write(self, change: Callable[[], Change | None]) -> None:
        """Execute a write as the owner, and publish what it has changed in the routes. Raises Unavailable."""
        self.owned().write(change)

    def writing(self) -> AbstractContextManager[None]:
        """A context manager for a write as the owner. If the write raises Fenced, because another meta server has
        become the owner, this raises Unavailable and ends the ownership of this process."""
        return self._ownership.writing()

    def ending(self) -> list[Tenant]:
        """The tenants that are being erased, or that will be deleted at a set time, by name; empty if another meta
        server is the owner."""
        return self._work.ending()

    def retired(self) -> list[Store]:
        """The retired stores whose files are being deleted, by tenant and id; empty if another meta server is the
        owner."""
        return self._work.retired()

    def is_owner(self) -> bool:
        """Whether this process is the owner, as far as it knows."""
        return self._ownership.held

    def owner(self) -> MetaClient:
        """A client of the meta server that is the owner, if that is another one. Raises Unavailable if no owner is
        known."""
        found = self._ownership.other
        if found is None:
            raise Unavailable("no meta server is the owner, because an election may be under way: retry")
        return found

    def not_ready(self) -> str | None:
        """The reason why this process cannot serve requests; None if it can."""
        if not self._prepared:
            return "the meta database was not opened yet"
        if not self.is_owner():
            if self._ownership.other is None:
                return "no meta server is the owner"
            return None if self._routes.current() is not None else "the owner has not sent the routes yet"
        return None if self._work.has_plan else "the plan was not read yet"

    def _require_owner(self) -> None:
        reason = self.not_ready() or (None if self.is_owner() else "another meta server is the owner")
        if reason is not None:
            raise Unavailable(reason)

    def _begin(self, owner_rev: int) -> None:
        self._work.begin(owner_rev)

    # -- loops ---------------------------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        """Loop body: take the owner's lease if no process holds it, or renew it if this process does. The first call
        migrates the database before. Raises Unavailable."""
        if not self._prepared:
            log.info("database ready", extra={"schema_version": self._repository.prepare()})
            self._prepared = True
        followed = self._ownership.other
        if self._ownership.hold(self._work.heartbeats.take_recent):
            self._metrics.owner_rev.set(self._ownership.rev)
            self.look_after_nodes()
        if self._ownership.other is not followed:
            self._wake_follow()

    def follow_owner(self) -> int:
        """Loop body: while another meta server is the owner, copy its routes. Returns the pause until the next call, in
        ms. `hold_lease` wakes the loop when there is another owner to follow."""
        if self.is_owner():
            return OWNER_PAUSE_MS
        found = self._ownership.other
        if found is None:
            return FOLLOW_PAUSE_MS
        current = self._routes.current()
        known, wait_ms = (-1, 0) if current is None else (current.version, FOLLOW_WAIT_MS)
        self._routes.publish(self._ownership.followed(found.routes(known, wait_ms)))
        return 0

    def look_after_nodes(self) -> int | None:
        """Loop body: update the states of nodes, plan tasks and stores, and publish the routes
        (OwnerCalls.look_after_nodes). Does nothing if another meta server is the owner. Returns the ms until the next
        call; None: the loop's usual interval."""
        return self._work.look_after_nodes()

    def activate_tenants(self) -> int:
        """Loop body: start the tenants whose schema_snap has arrived (OwnerCalls.activate_tenants). Does nothing if
        another meta server is the owner. Returns the ms until the next call."""
        return self._work.activate_tenants()

    def on_news(self, *, starts: Callable[[], None], looks: Callable[[], None], follow: Callable[[], None]) -> None:
        """Set the functions that call `activate_tenants`, `look_after_nodes` and `follow_owner` as soon as there is
        work for them."""
        self._work.wake_starts, self._work.wake_looks, self._wake_follow = starts, looks, follow

    def end_waits(self) -> None:
        """Answer the long polls now, because the process is stopping."""
        self._routes.end()
        self._work.announcements.end()

    # -- what any meta server answers ----------------------------------------------------------------------------

    def tenants(self, cluster_id: str) -> tuple[Tenant, ...]:
        """The tenants of a cluster, by name. Raises UnknownName."""
        return self._repository.tenants_of(cluster_id)

    def writes(self) -> int:
        """How many writes as the owner this process has made, renewals of the lease not counted."""
        return self._repository.write_count

    def who_owns(self) -> Owner:
        """The owner, as stored in the database."""
        return self._repository.owner()

    def routes(self) -> RouteBoard:
        """The RouteBoard on which readers wait. While another meta server is the owner, it has a copy of that server's
        routes. It keeps the last routes while no owner is known."""
        return self._routes
