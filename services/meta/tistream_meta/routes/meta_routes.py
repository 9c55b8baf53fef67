"""HTTP routes of the meta server. They parse requests, call MetaServer or the owner's work, and translate answers.

`/v1/*` is public and comes through the API server; `/upcall/v1/*` is for the platform's own processes. A meta server
that is not the owner serves reads from the database and the routes, and forwards other requests to the owner.
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey, parse_store_id
from tistream.model.retention import parse_retention_ms
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.model.ts import MAX_TS
from tistream.wire.clients.route_mark import RouteMark
from tistream.wire.meta import (
    Accepted,
    Announcement,
    Announcements,
    Children,
    ChildTask,
    CreateTenant,
    DrainNode,
    Heartbeat,
    HeartbeatAnswer,
    MergeTasks,
    MoveTask,
    NewStart,
    NodeInfo,
    NodeList,
    Notification,
    OwnerInfo,
    Registered,
    RegisterNode,
    RouteTable,
    SetEncryption,
    SetRetention,
    SplitTask,
    TaskInfo,
    TaskInfoList,
    TaskReport,
    TenantInfo,
    TenantList,
)
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.model import Child, Encryption, Retention
from tistream_meta.feeds.feed_watch import FeedCounts
from tistream_meta.owner.reports import ReportedTask
from tistream_meta.owner.route_table import tenant_info
from tistream_meta.owner.store_keeping import ReportedStore
from tistream_meta.routes.audit_routes import AuditedRoute
from tistream_meta.routes.forwarding import OwnersRoute
from tistream_meta.routes.forwarding import owned_of as _owned
from tistream_meta.routes.forwarding import owner_client as _owner_client
from tistream_meta.routes.forwarding import server_of as _server

_TS = re.compile(r"[0-9]{1,20}")

router = APIRouter(route_class=AuditedRoute)
of_owner = APIRouter(route_class=OwnersRoute)

NodeId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
WaitMs = Annotated[int, Query(ge=0, le=60_000)]


@of_owner.post("/v1/clusters/{cluster_id}/tenants", status_code=201, operation_id="CreateTenant")
def create_tenant(request: Request, cluster_id: str, body: CreateTenant) -> TenantInfo:
    """Register a tenant. Idempotent; 409 if it exists with another retention, key, kind, or setting of index keys."""
    given = "retention_ms" in body.model_fields_set
    retention = Retention(parse_retention_ms(body.retention_ms)) if given else None
    encryption = Encryption(body.kms_key_id) if "kms_key_id" in body.model_fields_set else None
    kind = None if body.kind is None else TenantKind(body.kind)
    key = TenantKey.parse(cluster_id, body.tenant_id)
    return tenant_info(_server(request).tenant_rules.create(key, retention, encryption, body.index_keys, kind))


@of_owner.put("/v1/clusters/{cluster_id}/tenants/{tenant_id}/retention", operation_id="SetRetention")
def set_retention(request: Request, cluster_id: str, tenant_id: str, body: SetRetention) -> TenantInfo:
    """Set how long a tenant's rows are kept. Idempotent."""
    key, retention = TenantKey.parse(cluster_id, tenant_id), Retention(parse_retention_ms(body.retention_ms))
    return tenant_info(_server(request).tenant_rules.set_retention(key, retention))


@of_owner.put("/v1/clusters/{cluster_id}/tenants/{tenant_id}/encryption", operation_id="SetEncryption")
def set_encryption(request: Request, cluster_id: str, tenant_id: str, body: SetEncryption) -> TenantInfo:
    """Set the key with which a tenant's new objects are encrypted. Idempotent."""
    key = TenantKey.parse(cluster_id, tenant_id)
    return tenant_info(_server(request).tenant_rules.set_encryption(key, Encryption(body.kms_key_id)))


@router.get("/v1/clusters/{cluster_id}/tenants", operation_id="ListTenants")
def list_tenants(request: Request, cluster_id: str) -> TenantList:
    """The tenants of a cluster, by name."""
    found = _server(request).tenants(TenantKey.parse(cluster_id, "any").cluster_id)
    return TenantList(cluster_id=cluster_id, tenants=[tenant_info(tenant) for tenant in found])


@of_owner.post("/v1/notifications", status_code=202, operation_id="Notify")
def notify(request: Request, body: Notification) -> Accepted:
    """Announce a file. The tenant need not be registered yet, because its first files may come before that."""
    key = TenantKey.parse(body.cluster_id, body.tenant_id)
    if not _TS.fullmatch(body.ts) or not 0 < int(body.ts) <= MAX_TS:
        raise InvalidRequest(f"ts {body.ts[:80]!r} is not a decimal timestamp (TSO)")
    announcement = Announcement(
        cluster_id=key.cluster_id,
        tenant_id=key.tenant_id,
        store_id=parse_store_id(body.store_id),
        ts=int(body.ts),
    )
    _owned(request).announce(announcement)
    return Accepted()


@of_owner.get("/v1/nodes", operation_id="ListNodes")
def list_nodes(request: Request) -> NodeList:
    """Every registered process of the platform."""
    counts: FeedCounts = request.app.state.feed_counts
    nodes, shards = _owned(request).nodes(), counts.held()
    return NodeList(
        nodes=[
            NodeInfo(
                node_id=node.node_id,
                role=node.role,
                url=node.url,
                state=state.value,
                start_epoch=node.start_epoch,
                tasks=tasks,
                stores=stores,
                shards=shards.get(node.node_id, 0),
            )
            for node, state, tasks, stores in nodes
        ]
    )


@of_owner.post("/v1/nodes/{node_id}/drain", status_code=202, operation_id="DrainNode")
def drain_node(request: Request, node_id: NodeId, body: DrainNode) -> Accepted:
    """Move all tasks, stores and shards of changefeeds off a node and assign none to it. `draining: false` ends that,
    and so does the node's next start."""
    _owned(request).drain(node_id, body.draining)
    return Accepted()


@of_owner.get("/v1/tasks", operation_id="ListAllTasks")
def list_tasks(request: Request) -> TaskInfoList:
    """Every task with its sorter and its phase."""
    return TaskInfoList(
        tasks=[
            TaskInfo(
                task_id=task.task_id,
                cluster_id=task.tenant.cluster_id,
                tenant_id=task.tenant.tenant_id,
                start_key=task.span.start.hex(),
                end_key=task.span.end.hex(),
                task_epoch=task.task_epoch,
                sorter_node=task.sorter_node,
                next_node=task.next_node,
                phase=placement.phase.value,
                load=load,
            )
            for task, placement, load in _owned(request).tasks()
        ]
    )


@of_owner.post("/v1/tasks/{task_id}/move", status_code=202, operation_id="MoveTask")
def move_task(request: Request, task_id: int, body: MoveTask) -> Accepted:
    """Begin to move a task to another sorter, which prepares to take it over."""
    _owned(request).move(task_id, body.node_id)
    return Accepted()


@of_owner.post("/v1/tasks/{task_id}/split", status_code=202, operation_id="SplitTask")
def split_task(request: Request, task_id: int, body: SplitTask) -> Children:
    """Order the split of a task into two, at `key` or at the key that halves its load. Returns their ids; they serve
    once the task is sealed."""
    key = None if body.key is None else _key(body.key, "key")
    return Children(children=list(_owned(request).split(task_id, key)))


@of_owner.post("/v1/tasks/{task_id}/merge", status_code=202, operation_id="MergeTasks")
def merge_tasks(request: Request, task_id: int, body: MergeTasks) -> Children:
    """Order the merge of two neighbouring tasks into one. Returns its id; the new task serves once both are sealed."""
    return Children(children=list(_owned(request).merge(task_id, body.neighbour)))


def _key(text: str, parameter: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{parameter} {text[:80]!r} is not hexadecimal: write two digits for each byte", {"parameter": parameter}
        ) from error


@router.get("/v1/owner", operation_id="Owner")
def show_owner(request: Request) -> OwnerInfo:
    """The owner among the meta servers, as stored in the database."""
    found = _server(request).who_owns()
    return OwnerInfo(node_id=found.node_id, url=found.url, owner_rev=found.owner_rev, lease_left_ms=found.lease_left_ms)


@of_owner.post("/upcall/v1/nodes/{node_id}/starts", operation_id="NewStart")
def new_start(request: Request, node_id: NodeId) -> NewStart:
    """Reserve a new start_epoch for a process that will register."""
    return NewStart(start_epoch=_owned(request).new_start(node_id))


@of_owner.put("/upcall/v1/nodes/{node_id}", operation_id="RegisterNode")
def register_node(request: Request, node_id: NodeId, body: RegisterNode) -> Registered:
    """Register a process start. The tasks of a sorter get new epochs. 409 `superseded`: a newer start has
    registered.
    """
    start = Start(body.instance, body.start_epoch)
    node, version = _owned(request).register(node_id, body.role, body.url, start)
    return Registered(start_epoch=node.start_epoch, route_version=version)


@router.post("/upcall/v1/nodes/{node_id}/heartbeat", operation_id="Heartbeat")
def heartbeat(request: Request, node_id: NodeId, body: Heartbeat) -> HeartbeatAnswer:
    """Accept the heartbeat of a process. 404: the process must register; 409 `superseded`: it must end."""
    seen = RouteMark(body.owner_rev, body.route_version)
    if (owner := _owner_client(request)) is not None:
        return owner.heartbeat(node_id, body, seen, body.sequence, body.tasks, body.stores)
    holdings = [_holding(task) for task in body.tasks]
    start = Start(body.instance, body.start_epoch)
    stores = [ReportedStore(TenantKey(one.cluster_id, one.tenant_id), one.store_id, one.load) for one in body.stores]
    owned = _owned(request)
    owner_rev, version, next_ms = owned.heartbeat(node_id, start, seen, body.sequence, holdings, stores)
    return HeartbeatAnswer(
        owner_rev=owner_rev,
        route_version=version,
        next_ms=next_ms,
        calm_ms=owned.heartbeats.calm_ms(next_ms),
        writes=_server(request).writes(),
    )


def _holding(report: TaskReport) -> ReportedTask:
    return ReportedTask(
        task_id=report.task_id,
        task_epoch=report.task_epoch,
        prepared=report.prepared,
        load=report.load,
        split_key=_key(report.split_key, "split_key"),
        progress_ts=report.progress_ts,
        stop_at=report.stop_at,
        sealed=tuple(Child(child.task_id, _span(child)) for child in report.sealed),
        fenced_by=report.fenced_by,
    )


def _span(child: ChildTask) -> KeySpan:
    start, end = _key(child.start_key, "start_key"), _key(child.end_key, "end_key")
    if end and start >= end:
        raise InvalidRequest(f"task {child.task_id}: its span is empty", {"parameter": "sealed"})
    return KeySpan(start, end)


@router.get("/upcall/v1/routes", operation_id="Routes")
def routes(
    request: Request,
    known_version: int = -1,
    known_rev: int = -1,
    node_id: str | None = None,
    wait_ms: WaitMs = 0,
    fresh: bool = False,
) -> RouteTable:
    """The route table, or its changes since `known_version` of owner `known_rev`. Waits up to `wait_ms` while that is
    the newest. A meta server that is not the owner returns its copy of the owner's routes; with `fresh` it first
    fetches them."""
    if fresh and (owner := _owner_client(request)) is not None:
        _server(request).routes().publish(owner.routes(fresh=True))
    table = _server(request).routes().wait(RouteMark(known_rev, known_version), wait_ms, node_id)
    if table is None:
        raise Unavailable("this meta server has no routes yet, because it has not reached the owner: retry")
    return table


@router.get("/upcall/v1/announcements", operation_id="Announcements")
def announcements(request: Request, after: int = 0, wait_ms: WaitMs = 0) -> Announcements:
    """The announced files with a sequence number above `after`. Waits up to `wait_ms` until there is one."""
    if (owner := _owner_client(request)) is not None:
        return owner.announcements(after, wait_ms)
    return _owned(request).announcements.after(after, wait_ms)


router.include_router(of_owner)
