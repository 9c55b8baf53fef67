"""Calls to the meta server, and a process's membership among its nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream.errors import Superseded, UnknownName
from tistream.wire.client import HttpClient, parse
from tistream.wire.meta import (
    Accepted,
    Announcements,
    CreateTenant,
    Heartbeat,
    HeartbeatAnswer,
    NewStart,
    Notification,
    Registered,
    RegisterNode,
    RouteTable,
    StartOf,
    TenantInfo,
    TenantList,
)

log = logging.getLogger(__name__)


class MetaClient:
    """The meta server at `base_url`."""

    def __init__(self, http: HttpClient, base_url: str) -> None:
        self._http = http
        self._base_url = base_url.rstrip("/")

    def routes(self, known_version: int = -1, wait_ms: int = 0) -> RouteTable:
        """The route table; waits up to wait_ms while its version is `known_version`."""
        url = f"{self._base_url}/upcall/v1/routes"
        return self._http.get(url, RouteTable, {"known_version": known_version}, wait_ms=wait_ms)

    def announcements(self, after: int, wait_ms: int = 0) -> Announcements:
        """Announced files with a sequence above `after`, at once if there are any."""
        url = f"{self._base_url}/upcall/v1/announcements"
        return self._http.get(url, Announcements, {"after": after}, wait_ms=wait_ms)

    def new_start(self, node_id: str) -> NewStart:
        """A number for a process that will register; asked again, it is another."""
        url = f"{self._base_url}/upcall/v1/nodes/{node_id}/starts"
        return parse(url, self._http.request("POST", url), NewStart)

    def register(self, node_id: str, role: str, url: str, start: StartOf) -> Registered:
        """This process has started; again the same is harmless. Raises Superseded."""
        body = RegisterNode(role=role, url=url, instance=start.instance, start_epoch=start.start_epoch)
        return self._http.send("PUT", f"{self._base_url}/upcall/v1/nodes/{node_id}", body, Registered)

    def heartbeat(self, node_id: str, start: StartOf) -> HeartbeatAnswer:
        """Still there. Raises UnknownName if meta does not know of this start (any more); Superseded."""
        url = f"{self._base_url}/upcall/v1/nodes/{node_id}/heartbeat"
        return self._http.send(
            "POST", url, Heartbeat(instance=start.instance, start_epoch=start.start_epoch), HeartbeatAnswer
        )

    def create_tenant(self, cluster_id: str, tenant_id: str) -> TenantInfo:
        """Register a tenant; again the same is no error. Raises InvalidRequest, AlreadyDiffers."""
        url = f"{self._base_url}/v1/clusters/{cluster_id}/tenants"
        return self._http.send("POST", url, CreateTenant(tenant_id=tenant_id), TenantInfo)

    def tenants(self, cluster_id: str) -> TenantList:
        """A cluster's tenants. Raises UnknownName."""
        return self._http.get(f"{self._base_url}/v1/clusters/{cluster_id}/tenants", TenantList)

    def notify(self, notification: Notification) -> Accepted:
        """Announce a file."""
        return self._http.send("POST", f"{self._base_url}/v1/notifications", notification, Accepted)


class Membership:
    """Registers a process and keeps it alive: run `beat` in a loop, about once a second.

    `registered` is None until the first beat reached the meta server. A process that meta has forgotten registers
    again; one that a newer start under its name has replaced ends itself (`end`, called once). `instance` is drawn at
    random at each start of a process.
    """

    def __init__(
        self, meta: MetaClient, node_id: str, role: str, url: str, *, instance: str, end: Callable[[], None]
    ) -> None:
        self._meta = meta
        self._node_id = node_id
        self._role = role
        self._url = url
        self._instance = instance
        self._end = end
        self._start_epoch: int | None = None  # once asked for, the same for life: it is how old this process is
        self._superseded = False
        self.registered: Registered | None = None

    def beat(self) -> None:
        """Register if that has not happened, else send a heartbeat. Raises Unavailable."""
        if self._superseded:
            return
        try:
            self._beat()
        except Superseded as error:
            self._superseded = True
            log.error("superseded: this process ends", extra={"node": self._node_id, "reason": str(error)})
            self._end()

    def _beat(self) -> None:
        if self._start_epoch is None:
            self._start_epoch = self._meta.new_start(self._node_id).start_epoch
        start = StartOf(instance=self._instance, start_epoch=self._start_epoch)
        if self.registered is not None:
            try:
                self._meta.heartbeat(self._node_id, start)
                return
            except UnknownName as error:
                log.warning("registering again", extra={"node": self._node_id, "error": str(error)})
                self.registered = None
        self.registered = self._meta.register(self._node_id, self._role, self._url, start)
