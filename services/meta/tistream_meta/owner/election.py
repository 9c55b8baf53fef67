"""Elects the owner among the meta servers by a lease in the database. A process takes and renews the lease, or records
which process holds it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tistream.clock import Clock
from tistream.concurrency import Lock
from tistream.errors import Fenced, Unavailable
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.route_mark import NOTHING_SEEN, RouteMark
from tistream.wire.meta import RouteTable
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Owner
from tistream_meta.metrics import MetaMetrics

log = logging.getLogger(__name__)


class Ownership:
    """This process's part in the election. `begin(owner_rev)` is called before this process answers as the owner, with
    the lock held: after its election, and when it is the owner again after a time without renewals."""

    def __init__(
        self,
        repository: Repository,
        clock: Clock,
        lock: Lock,
        lease_ms: int,
        own_url: str,
        new_client: Callable[[str], MetaClient],
        begin: Callable[[int], None],
        metrics: MetaMetrics,
    ) -> None:
        self._repository, self._clock, self._lock = repository, clock, lock
        self._lease_ms, self._own_url = lease_ms, own_url
        self._new_client, self._begin = new_client, begin
        self._metrics = metrics
        self._since_ms: int | None = None  # None: this process is not the owner
        self._renewed_ms = 0  # when the last successful renewal of the lease was begun
        self._lapsed = False  # the lease was not renewed for its whole length
        self._other: tuple[Owner, MetaClient] | None = None  # another owner, from the database
        self._seen = NOTHING_SEEN  # the highest owner_rev and the highest version that any node has followed
        self._restored = False  # a node has followed routes that are newer than the database's
        self._elected_at = 0  # the version of the database's routes at this process's last election
        self.rev = 0  # of this process's last election

    @property
    def held(self) -> bool:
        """Whether this process is the owner, as far as it knows. It measures the lease with its own clock, from the
        time at which it sent the last successful renewal."""
        return self._since_ms is not None and not self._lapsed and not self._overdue()

    @property
    def since_ms(self) -> int | None:
        """When the present, unbroken ownership began, in monotonic ms; None if `held` is false."""
        return self._since_ms if self.held else None

    @property
    def other(self) -> MetaClient | None:
        """A client of the owner; None if this process is the owner, or no owner is known."""
        return None if self._other is None else self._other[1]

    def check_mark(self, mark: RouteMark, newest: RouteMark) -> None:
        """Record that a node follows the routes with this mark, which is their owner_rev and version. `newest` is the
        mark of the newest routes in the database. If the node's are newer, the database was restored from a backup, and
        the owner must be elected again. The caller must hold the lock."""
        self._seen = self._seen.max_with(mark)
        # Versions grow across elections. So no process has followed an earlier owner's routes of a version above the
        # one at this election, unless the database was restored to a time before that version.
        known = newest.version if mark.owner_rev == newest.owner_rev else self._elected_at
        self._restored |= mark.owner_rev > newest.owner_rev or mark.version > known

    def followed(self, table: RouteTable) -> RouteTable:
        """Record that this process has copied another owner's routes, so that its own routes get higher versions.
        Returns those routes."""
        with self._lock:
            self._seen = self._seen.max_with(RouteMark(table.owner_rev, table.version))
        return table

    def hold(self, heard_from: Callable[[], Iterable[str]]) -> bool:
        """Take the lease if no process holds it, or renew it if this process does. Returns True if this call has
        elected this process; False after a renewal, or if another process holds the lease. Nodes that have followed
        routes which a restored database does not have cause a new election. Raises Unavailable if the database does not
        answer, or if a renewal finds that another process is the owner. `heard_from` returns the nodes with a heartbeat
        since its last call; it is called before a renewal, with the lock held."""
        if self._since_ms is None:
            return self._take()
        if self._restored:
            # The database was restored: it has forgotten routes that nodes have followed, and nodes ignore older
            # routes.
            log.warning("nodes have seen newer routes than the database has: elected again", extra={"seen": self._seen})
            return self._take()
        began_ms = self._clock.monotonic_ms()
        if self._overdue() and not self._lapsed:
            log.error(
                "the lease was not renewed in time: this server accepts no heartbeats until it renews it",
                extra={"owner_rev": self.rev},
            )
            self._lapsed = True
        with self._lock:
            names = set(heard_from())
        with self.writing():
            self._repository.renew(self._lease_ms, names)
        with self._lock:
            self._renewed_ms = began_ms
            # no other process took over, but no heartbeat was accepted meanwhile, so each node's time starts again
            if self._lapsed:
                self._lapsed = False
                self._begin(self.rev)
                self._since_ms = self._clock.monotonic_ms()
                log.info("lease renewed after a lapse: still the owner", extra={"owner_rev": self.rev})
        return False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context manager for writes as the owner. If a write is Fenced, another process is the owner: this ends the
        ownership of this process, and raises Unavailable."""
        try:
            yield
        except Fenced as error:
            self._metrics.refused.labels("write").inc()
            if self._since_ms is not None:
                log.error("lost the ownership", extra={"owner_rev": self.rev, "reason": str(error)})
            self._since_ms = None
            raise Unavailable("another meta server is the owner: retry there") from error

    def _overdue(self) -> bool:
        return self._clock.monotonic_ms() - self._renewed_ms >= self._lease_ms

    def _take(self) -> bool:
        began_ms = self._clock.monotonic_ms()
        with self._lock:
            above, restored = self._seen, self._restored
        taken = self._repository.take_ownership(
            self._lease_ms, self._own_url, above, first=not self.rev, restored=restored
        )
        with self._lock:
            self._restored = False
        if taken.owner_rev != self._repository.owner_rev:
            self._note_other(taken)
            return False
        with self._lock:
            self.rev, self._elected_at = taken.owner_rev, taken.version
            self._begin(taken.owner_rev)
            self._other = None
            self._lapsed = False
            self._renewed_ms = began_ms
            self._since_ms = self._clock.monotonic_ms()
        log.info("owner now", extra={"owner_rev": taken.owner_rev})
        return True

    def _note_other(self, found: Owner) -> None:
        """Record that another process has the lease, so that requests are forwarded to it."""
        known = self._other
        if known is None or known[0].owner_rev != found.owner_rev or known[0].url != found.url:
            log.info("another is the owner", extra={"node": found.node_id, "owner_rev": found.owner_rev})
            self._other = (found, self._new_client(found.url)) if found.url else None
        elif known is not None:
            self._other = (found, known[1])
