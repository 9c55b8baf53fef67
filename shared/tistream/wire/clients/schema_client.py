"""Calls to the schema registry, and a replica of a tenant's history that is built from its log."""

from __future__ import annotations

from collections.abc import Callable

from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.schema.history import History
from tistream.schema.records import Record, from_json
from tistream.wire.clients.client import HttpClient
from tistream.wire.schema import LogPage, SchemaStatus, SchemaView


class SchemaClient:
    """Client of the schema registry. `find_url` returns its current URL, which may change with a restart. It raises
    Unavailable if the URL is unknown. Every call raises Unavailable if the registry does not answer."""

    def __init__(self, http: HttpClient, find_url: Callable[[], str]) -> None:
        self._http = http
        self._find_url = find_url

    def schema(self, tenant: TenantKey, ts: int | None = None) -> SchemaView:
        """The visible schema at `ts` (default: the newest). Raises UnknownName, Gone; Unavailable if the registry's
        history does not reach `ts` yet."""
        return self._http.get(self._url(tenant, "schema"), SchemaView, {"ts": ts})

    def log(
        self, tenant: TenantKey, after: int, known_resolved_ts: int = 0, wait_ms: int = 0, known_base_ts: int = 0
    ) -> LogPage:
        """One page of the schema log: the records after number `after`. The call waits up to `wait_ms` if there are
        none, and the registry's resolved_ts is not above `known_resolved_ts`. `known_base_ts`: the base to which the
        reader's records belong; 0: it has no records. Raises UnknownName; Unavailable while the snapshot has not been
        read."""
        query = {"after": after, "known_resolved_ts": known_resolved_ts, "known_base_ts": known_base_ts}
        return self._http.get(self._url(tenant, "schema/log"), LogPage, query, wait_ms=wait_ms)

    def status(self, tenant: TenantKey) -> SchemaStatus:
        """The registry's progress for a tenant, and the reasons if it makes no progress. Raises UnknownName."""
        return self._http.get(self._url(tenant, "schema/status"), SchemaStatus)

    def _url(self, tenant: TenantKey, path: str) -> str:
        return f"{self._find_url().rstrip('/')}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/{path}"


class SchemaReplica:
    """A copy of a tenant's schema History, built from the registry's log and kept up to date.

    Not thread-safe: hold one lock around `refresh` and every use of `history`. `history` is `None` until the first
    complete refresh. It is replaced if the registry's log begins anew, or no longer contains records that this replica
    has not read.
    """

    def __init__(self, client: SchemaClient, tenant: TenantKey) -> None:
        self._client = client
        self._tenant = tenant
        self._log_id = ""
        self._after = 0
        self._base_ts = 0
        self._parked: list[Record] = []
        self._anew = True  # whether the parked records begin a new history instead of continuing `history`
        self.history: History | None = None

    @property
    def resolved_ts(self) -> int:
        """The ts up to which `history` is complete; 0 before the first refresh."""
        return self.history.resolved_ts if self.history else 0

    def fetch(self, wait_ms: int = 0) -> LogPage:
        """Fetch one page of the log without applying it. Only this method waits for the network, and the caller need
        not hold the lock."""
        return self._client.log(self._tenant, self._after, self.resolved_ts, wait_ms, self._base_ts)

    def apply(self, page: LogPage) -> bool:
        """Apply a page from `fetch`. Returns whether the replica now has the whole log."""
        if page.log_id != self._log_id:
            begun_anew = bool(self._log_id)
            self._log_id, self._after, self._base_ts, self.history = page.log_id, 0, 0, None
            self._parked, self._anew = [], True
            if begun_anew:
                return False
        if page.begins:  # the known history stays valid, and is used until all of the new one has arrived
            self._parked, self._anew = [], True
        self._parked += map(from_json, page.records)
        self._after, self._base_ts = page.next_after, page.base_ts
        if page.more:
            return False
        if self._anew or self.history is None:
            self.history, earlier = History(page.snapshot_ts), self.history
            self.history.advance(earlier.resolved_ts if earlier else 0)
        self.history.apply(self._parked)
        self._parked, self._anew = [], False
        self.history.advance(page.resolved_ts)
        self.history.forget(page.base_ts)
        return True

    def refresh(self, wait_ms: int = 0) -> History:
        """Fetch and apply pages until there are no more. If there is nothing new at first, the call waits once, up to
        wait_ms. Raises Unavailable while the registry has no history of the tenant."""
        complete = self.apply(self.fetch(wait_ms))
        while not complete:
            complete = self.apply(self.fetch())
        if self.history is None:
            raise Unavailable(f"schema of {self._tenant}: no history yet")
        return self.history
