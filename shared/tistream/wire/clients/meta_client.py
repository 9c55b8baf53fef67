"""Calls to the meta server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from httpx import Response

from tistream.concurrency import new_lock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.wire.audit import SignedRead
from tistream.wire.bulk.backfills import BackfillRow, BackfillRows, EndBackfill
from tistream.wire.bulk.changefeeds import FeedAssignments, WorkerBeat
from tistream.wire.bulk.restores import (
    ClaimedRestore,
    ClaimRestore,
    RestoreInfo,
    RestoreReport,
    RestoreWork,
    UnfinishedRestores,
)
from tistream.wire.bulk.secrets import SealedSecrets
from tistream.wire.bulk.sources import SourceRows
from tistream.wire.clients.client import HttpClient, parse
from tistream.wire.clients.route_mark import NOTHING_SEEN, RouteMark
from tistream.wire.clients.route_merge import merged
from tistream.wire.meta import (
    Accepted,
    Announcements,
    Children,
    CreateTenant,
    DeleteTenant,
    DrainNode,
    Heartbeat,
    HeartbeatAnswer,
    MergeTasks,
    MoveTask,
    NewStart,
    NodeList,
    Notification,
    PauseTenant,
    Registered,
    RegisterNode,
    RetireStore,
    RouteTable,
    SetEncryption,
    SetRetention,
    SplitTask,
    StartOf,
    StoreReport,
    TaskInfoList,
    TaskReport,
    TenantInfo,
    TenantList,
)
from tistream.wire.usage import QuotasInfo, SetQuotas, UsageReport

log = logging.getLogger(__name__)

T = TypeVar("T")

# If a meta server hangs, the next one is tried well before a node that sends heartbeats counts as lost (10 s).
BEAT_DEADLINE_S = 3.0
USAGE_DEADLINE_S = 4.0  # the last report is sent while the process is ending
SIGNED_DEADLINE_S = 3.0  # a reader waits, and pulls if no meta server answers


class StaleRoutes(Unavailable):
    """The meta server that answered has an older route table than this process has seen. The same call may succeed
    later."""


class MetaClient:
    """Client of the meta servers at `base_urls` (separated by commas). Any of them can answer a call; if one does not,
    the next one is tried. Every call raises Unavailable if no meta server answers, and otherwise the errors of
    HttpClient.request.

    Thread-safe. `seen` is the mark of the newest route table that was received. With a `node_id`, route tables contain
    only that node's tasks. `on_stale` is called for each table that is ignored because it is older than one already
    received.
    """

    def __init__(
        self,
        http: HttpClient,
        base_urls: str,
        node_id: str | None = None,
        on_stale: Callable[[], object] = lambda: None,
    ) -> None:
        self._http = http
        self._node_id = node_id
        self._on_stale = on_stale
        self.on_owner: Callable[[], None] = lambda: None  # called when routes come from another owner than before
        self._table: RouteTable | None = None  # the newest table, complete
        self._base_urls = [url.rstrip("/") for url in base_urls.split(",")]
        self._at = 0  # index of the server that answered last
        self._lock = new_lock()
        self.seen = NOTHING_SEEN
        self._reported = NOTHING_SEEN  # the newest mark that the answer to a heartbeat had

    def routes(self, known_version: int = -1, wait_ms: int = 0, *, fresh: bool = False) -> RouteTable:
        """Get the complete route table. If its version is still `known_version`, wait up to wait_ms for a newer one.
        With `fresh`, the table must be as new as the elected owner's; otherwise Unavailable is raised. Raises
        StaleRoutes if the answer is older than a table that this client has received, or that a heartbeat's answer has
        reported."""
        with self._lock:
            base = self._table
        params: dict[str, int | str] = {"known_version": -1, "fresh": int(fresh)}
        if base is not None:  # request only the changes since the known table
            params |= {"known_version": base.version, "known_rev": base.owner_rev}
            wait_ms = wait_ms if known_version == base.version else 0
        expected = self._reported
        if expected > self.seen:
            wait_ms = 0  # there is a newer table than this process has, so do not wait at a server without it
        if self._node_id is not None:
            params["node_id"] = self._node_id
        found = self._of_any(lambda url: self._http.get(f"{url}/upcall/v1/routes", RouteTable, params, wait_ms=wait_ms))
        mark = RouteMark(found.owner_rev, found.version)
        with self._lock:
            if mark < self.seen or mark.version < self.seen.version:
                newest = self._table
                if fresh and newest is not None and RouteMark(newest.owner_rev, newest.version) == self.seen:
                    return newest  # another thread has stored a newer table since the owner answered
                self._on_stale()
                raise StaleRoutes(f"routes {mark} are older than {self.seen}")
            if mark < expected:
                # This server does not receive tables from the owner: try another.
                self._at = (self._at + 1) % len(self._base_urls)
                self._on_stale()
                raise StaleRoutes(f"routes {mark} are older than {expected}, which a heartbeat's answer reported")
            self._table = table = merged(self._table, found)
            before, self.seen = self.seen, mark
        if before.owner_rev != mark.owner_rev:
            self.on_owner()
        return table

    def running_backfills(self) -> BackfillRows:
        """The running backfills of all tenants. Raises UnknownName if the meta server's version has no backfills."""
        return self._of_any(lambda url: self._http.get(f"{url}/upcall/v1/backfills", BackfillRows))

    def ended_backfills(self) -> BackfillRows:
        """The ended backfills of all tenants. Raises UnknownName if the meta server's version has no list of them."""
        return self._of_any(lambda url: self._http.get(f"{url}/upcall/v1/ended-backfills", BackfillRows))

    def backfill(self, cluster_id: str, tenant_id: str, backfill_id: str) -> BackfillRow:
        """One backfill of a tenant. Raises UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/backfills/{backfill_id}"
        return self._of_any(lambda url: self._http.get(f"{url}{path}", BackfillRow))

    def backfills_of(self, cluster_id: str, tenant_id: str) -> BackfillRows:
        """The backfills of a tenant, newest first. Raises UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/backfills"
        return self._of_any(lambda url: self._http.get(url + path, BackfillRows))

    def end_backfill(self, row: BackfillRow, end: EndBackfill) -> BackfillRow:
        """Report that a backfill has finished or failed, or that the platform cancels it. Raises AlreadyDiffers if it
        has ended with another result."""
        path = f"/upcall/v1/clusters/{row.cluster_id}/tenants/{row.tenant_id}/backfills/{row.backfill_id}/end"
        return self._of_any(lambda url: self._http.send("PUT", url + path, end, BackfillRow))

    def usage(self, report: UsageReport) -> Accepted:
        """Report the usage of tenants. Raises UnknownName if the meta server's version does not accept reports."""
        path = "/upcall/v1/usage"
        return self._of_any(
            lambda url: self._http.send("POST", url + path, report, Accepted, deadline_s=USAGE_DEADLINE_S)
        )

    def record_signed(self, tenant: TenantKey, read: SignedRead) -> Accepted:
        """Record an answer of SignedChanges in the audit log, with the actor of the request. Raises UnknownName if the
        meta server's version does not record them."""
        path = f"/upcall/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/signed-changes"
        send = partial(self._http.send, "POST", deadline_s=SIGNED_DEADLINE_S)
        return self._of_any(lambda url: send(url + path, read, Accepted))

    def announcements(self, after: int, wait_ms: int = 0) -> Announcements:
        """Get the announced files with a sequence number above `after`. If no file was announced, wait up to
        wait_ms."""
        params = {"after": after}
        return self._of_any(
            lambda url: self._http.get(f"{url}/upcall/v1/announcements", Announcements, params, wait_ms=wait_ms)
        )

    def new_start(self, node_id: str) -> NewStart:
        """Request a start_epoch for a process that will register. It is higher than all earlier ones of the node, so
        the registration replaces that of an earlier process."""
        path = f"/upcall/v1/nodes/{node_id}/starts"
        return self._of_any(lambda url: parse(url + path, self._http.request("POST", url + path), NewStart))

    def register(self, node_id: str, role: str, url: str, start: StartOf) -> Registered:
        """Register this process's start. Idempotent. Raises Superseded."""
        body = RegisterNode(role=role, url=url, instance=start.instance, start_epoch=start.start_epoch)
        return self._of_any(lambda at: self._http.send("PUT", f"{at}/upcall/v1/nodes/{node_id}", body, Registered))

    def heartbeat(
        self,
        node_id: str,
        start: StartOf,
        seen: RouteMark | None = None,
        sequence: int = 0,
        tasks: Sequence[TaskReport] = (),
        stores: Sequence[StoreReport] = (),
    ) -> HeartbeatAnswer:
        """Send a heartbeat, which reports `seen` as the state of the route table that the node has; None: the newest
        one that this client has read. Raises UnknownName if the meta server does not know this start, or has forgotten
        it; Superseded."""
        mark = seen or self.seen
        body = Heartbeat(
            instance=start.instance,
            start_epoch=start.start_epoch,
            owner_rev=mark.owner_rev,
            route_version=mark.version,
            sequence=sequence,
            tasks=list(tasks),
            stores=list(stores),
        )
        path = f"/upcall/v1/nodes/{node_id}/heartbeat"
        answer = self._of_any(
            lambda url: self._http.send("POST", url + path, body, HeartbeatAnswer, deadline_s=BEAT_DEADLINE_S)
        )
        self._reported = RouteMark(answer.owner_rev, answer.route_version)
        return answer

    def create_tenant(self, cluster_id: str, tenant_id: str) -> TenantInfo:
        """Register a tenant. Idempotent. Raises InvalidRequest."""
        return self.register_tenant(cluster_id, CreateTenant(tenant_id=tenant_id))

    def register_tenant(self, cluster_id: str, tenant: CreateTenant) -> TenantInfo:
        """Register a tenant with all its options. Raises InvalidRequest, AlreadyDiffers."""
        path = f"/v1/clusters/{cluster_id}/tenants"
        body = tenant.model_dump_json(exclude_unset=True).encode()  # a member that is left out differs from null
        send = partial(self._http.request, "POST", content=body, content_type="application/json")
        return self._of_any(lambda url: parse(url + path, send(url + path), TenantInfo))

    def set_retention(self, cluster_id: str, tenant_id: str, retention: SetRetention) -> TenantInfo:
        """Set how long a tenant's rows are kept. Raises InvalidRequest, UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/retention"
        return self._of_any(lambda url: self._http.send("PUT", url + path, retention, TenantInfo))

    def set_quotas(self, cluster_id: str, tenant_id: str, quotas: SetQuotas) -> QuotasInfo:
        """Set a tenant's limits. Raises InvalidRequest, UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas"
        return self._of_any(lambda url: self._http.send("PUT", url + path, quotas, QuotasInfo))

    def set_encryption(self, cluster_id: str, tenant_id: str, encryption: SetEncryption) -> TenantInfo:
        """Set the key that encrypts a tenant's new objects. Raises InvalidRequest, UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/encryption"
        return self._of_any(lambda url: self._http.send("PUT", url + path, encryption, TenantInfo))

    def pause_tenant(self, cluster_id: str, tenant_id: str, pause: PauseTenant) -> TenantInfo:
        """Pause or resume a tenant. Raises InvalidRequest, UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/pause"
        return self._of_any(lambda url: self._http.send("PUT", url + path, pause, TenantInfo))

    def delete_tenant(self, cluster_id: str, tenant_id: str, deletion: DeleteTenant) -> TenantInfo:
        """Delete a tenant after a grace period. Raises InvalidRequest, UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/deletion"
        return self._of_any(lambda url: self._http.send("PUT", url + path, deletion, TenantInfo))

    def keep_tenant(self, cluster_id: str, tenant_id: str) -> TenantInfo:
        """Cancel a deletion. Raises InvalidRequest, UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/deletion"
        return self._of_any(lambda url: parse(url + path, self._http.request("DELETE", url + path), TenantInfo))

    def retire_store(self, cluster_id: str, tenant_id: str, store_id: str, retirement: RetireStore) -> Accepted:
        """Stop reading a store, and delete its files. Raises InvalidRequest, UnknownName."""
        path = f"/upcall/v1/clusters/{cluster_id}/tenants/{tenant_id}/stores/{store_id}/retirement"
        return self._of_any(lambda url: self._http.send("PUT", url + path, retirement, Accepted))

    def sources(self) -> SourceRows:
        """The sources of all tenants."""
        return self._of_any(lambda url: self._http.get(f"{url}/upcall/v1/sources", SourceRows))

    def sources_of(self, cluster_id: str, tenant_id: str) -> SourceRows:
        """The sources of a tenant. Raises UnknownName."""
        path = f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/sources"
        return self._of_any(lambda url: self._http.get(url + path, SourceRows))

    def claim_restore(self, node_id: str) -> RestoreWork | None:
        """Claim the next restore to run, under a new epoch. Returns None if no restore waits."""
        body = ClaimRestore(node_id=node_id)
        return self._of_any(
            lambda url: self._http.send("POST", f"{url}/upcall/v1/restores/claims", body, ClaimedRestore)
        ).restore

    def unfinished_restores(self) -> UnfinishedRestores:
        """The waiting and running restores of all tenants. Raises UnknownName if the meta server's version has no list
        of them."""
        return self._of_any(lambda url: self._http.get(f"{url}/upcall/v1/unfinished-restores", UnfinishedRestores))

    def report_restore(self, work: RestoreWork, report: RestoreReport) -> RestoreInfo:
        """Report the progress of a claimed restore. Raises ClaimEnded, UnknownName."""
        path = (
            f"/upcall/v1/clusters/{work.cluster_id}/tenants/{work.tenant_id}/restores/{work.wanted.restore_id}/reports"
        )
        return self._of_any(lambda url: self._http.send("POST", url + path, report, RestoreInfo))

    def sealed_secrets(self, tenant: TenantKey) -> dict[str, str]:
        """The sealed secrets of a tenant, by name."""
        path = f"/upcall/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/secrets"
        return self._of_any(lambda url: self._http.get(url + path, SealedSecrets)).sealed

    def beat_feeds(self, beat: WorkerBeat) -> FeedAssignments:
        """Report the shards of changefeeds that this worker holds. The answer lists the shards that it must hold."""
        send = partial(self._http.send, "POST", deadline_s=BEAT_DEADLINE_S)
        return self._of_any(lambda url: send(f"{url}/upcall/v1/changefeeds/beats", beat, FeedAssignments))

    def tenants(self, cluster_id: str) -> TenantList:
        """A cluster's tenants. Raises UnknownName."""
        return self._of_any(lambda url: self._http.get(f"{url}/v1/clusters/{cluster_id}/tenants", TenantList))

    def nodes(self) -> NodeList:
        """The processes of the platform, except the meta servers."""
        return self._of_any(lambda url: self._http.get(f"{url}/v1/nodes", NodeList))

    def tasks(self) -> TaskInfoList:
        """The tasks of all tenants."""
        return self._of_any(lambda url: self._http.get(f"{url}/v1/tasks", TaskInfoList))

    def drain(self, node_id: str, draining: bool = True) -> Accepted:
        """Move all work off a node, or with `draining` false cancel that. Raises UnknownName."""
        path, body = f"/v1/nodes/{node_id}/drain", DrainNode(draining=draining)
        return self._of_any(lambda url: self._http.send("POST", url + path, body, Accepted))

    def move(self, task_id: int, node_id: str) -> Accepted:
        """Move a task to a sorter. Raises UnknownName, InvalidRequest."""
        path, body = f"/v1/tasks/{task_id}/move", MoveTask(node_id=node_id)
        return self._of_any(lambda url: self._http.send("POST", url + path, body, Accepted))

    def split(self, task_id: int, key: str | None = None) -> Children:
        """Split a task at a key (hex), or where it halves the load. Raises UnknownName, InvalidRequest."""
        path, body = f"/v1/tasks/{task_id}/split", SplitTask(key=key)
        return self._of_any(lambda url: self._http.send("POST", url + path, body, Children))

    def merge(self, task_id: int, neighbour: int) -> Children:
        """Merge two adjacent tasks. Raises UnknownName, InvalidRequest."""
        path, body = f"/v1/tasks/{task_id}/merge", MergeTasks(neighbour=neighbour)
        return self._of_any(lambda url: self._http.send("POST", url + path, body, Children))

    def notify(self, notification: Notification) -> Accepted:
        """Announce a pushed change file, so that dispatchers need not wait for their next LIST. A lost announcement
        costs latency only."""
        return self._of_any(lambda url: self._http.send("POST", f"{url}/v1/notifications", notification, Accepted))

    def request(
        self, method: str, path: str, content: bytes | None = None, deadline_s: float | None = None
    ) -> Response:
        """Send a request for which this class has no method. The request must be safe to repeat, because it is sent to
        the next meta server if one does not answer. `content` must be JSON."""
        kind = None if content is None else "application/json"
        return self._of_any(
            lambda url: self._http.request(
                method, url + path, content=content, content_type=kind, deadline_s=deadline_s
            )
        )

    def _of_any(self, call: Callable[[str], T]) -> T:
        """Call the meta servers one after the other, beginning with the one that answered last, until one answers.
        Raises Unavailable if none answers."""
        first, problem = self._at, Unavailable("no meta server is known")
        for number in range(first, first + len(self._base_urls)):
            at = number % len(self._base_urls)
            try:
                answer = call(self._base_urls[at])
            except Unavailable as error:
                problem = error
                continue
            self._at = at
            return answer
        raise problem
