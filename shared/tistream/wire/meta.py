"""What the meta server receives and answers: tenants, routes, nodes, announcements of files."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream.wire.limits import NO_LIMITS, Limits
from tistream.wire.sorter import Wire

DELETE_GRACE_MS = 24 * 3_600_000  # default time in which a deletion may be cancelled
DELETE_GRACE_MAX_MS = 365 * 24 * 3_600_000
URL_MAX = 255  # limit of a process's URL in the meta database
# An id, an alias or an ARN. It is sent in a header of each request to object storage.
KMS_KEY_ID_PATTERN = "^[A-Za-z0-9][A-Za-z0-9:/_.+=@-]{0,511}$"
KmsKeyId = Annotated[str, Field(pattern=KMS_KEY_ID_PATTERN)]


class StrictRequest(Wire):
    """Base of requests that users send: unknown members and values of other types are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Notification(StrictRequest):
    """`POST /v1/notifications`: a writer announces a file. All members are strings (design.md 2)."""

    cluster_id: str
    tenant_id: str
    store_id: str
    ts: str


class Announcement(Wire):
    """One announced file, as a dispatcher reads it from `GET /upcall/v1/announcements?after=N&wait_ms=M`."""

    cluster_id: str
    tenant_id: str
    store_id: int
    ts: int


class Announcements(Wire):
    """Announcements with a sequence number above the requested one; `next_after` is the number for the next request.
    `lost`: some were dropped, so the reader must LIST all stores once."""

    next_after: int
    lost: bool
    announcements: list[Announcement]


class Accepted(Wire):
    """The answer (202) of a request that has been accepted, and may still be under way."""

    status: str = "accepted"


class CreateTenant(StrictRequest):
    """`POST /v1/clusters/{cluster_id}/tenants`: register a tenant. The answer is 201, also if the same tenant exists
    already, and 409 if the existing one differs.

    `retention_ms` (decimal) is how long rows are kept after their commit; null: forever. If it is left out, a new
    tenant gets the default of the meta server's settings, and an existing one keeps its value. `kms_key_id` is the key
    that encrypts the tenant's objects (SSE-KMS); null, or left out for a new tenant: no key of its own. `index_keys`:
    whether index entries are kept in the pool, for restores; null, or left out: the sorters' setting. It cannot be
    changed later, because entries that were dropped are lost. `kind`: tidb, or raw for the keys and values of RawKV;
    null, or left out for a new tenant: tidb. It cannot be changed either.
    """

    tenant_id: str
    retention_ms: str | None = None
    kms_key_id: KmsKeyId | None = None
    index_keys: bool | None = None
    kind: Literal["tidb", "raw"] | None = None


class SetRetention(StrictRequest):
    """`PUT /v1/clusters/{cluster_id}/tenants/{tenant_id}/retention`: `retention_ms` as in CreateTenant."""

    retention_ms: str | None


class SetEncryption(StrictRequest):
    """`PUT /v1/clusters/{cluster_id}/tenants/{tenant_id}/encryption`: `kms_key_id` as in CreateTenant."""

    kms_key_id: KmsKeyId | None


class PauseTenant(StrictRequest):
    """`PUT /v1/clusters/{cluster_id}/tenants/{tenant_id}/pause`: stop reading the tenant's input; false: resume."""

    paused: bool


class DeleteTenant(StrictRequest):
    """`PUT /v1/clusters/{cluster_id}/tenants/{tenant_id}/deletion`: delete the tenant and all its data `grace_ms`
    (decimal) from now. `confirm` repeats the tenant_id."""

    confirm: str
    grace_ms: str = str(DELETE_GRACE_MS)


class RetireOrder(StrictRequest):
    """`POST /v1/clusters/{cluster_id}/tenants/{tenant_id}/stores/{store_id}/retire`. Retire a store, which an operator
    has declared gone. `discard`: delete files that were never read, too."""

    discard: bool = False


class RetireStore(StrictRequest):
    """`PUT /upcall/v1/clusters/{cluster_id}/tenants/{tenant_id}/stores/{store_id}/retirement`: the API server asks to
    retire a store. It states that the store's files up to `taken_ts` (decimal) are in the manifests of every task, and
    that no task needs them any more. `discard`: later files, which were never read, are deleted too."""

    taken_ts: str
    discard: bool = False


class TenantInfo(Wire):
    """One tenant. `snapshot_ts` (decimal) is null until its schema_snap was read; `problem` then has the reason.
    `retention_ms` (decimal) null: its rows are kept forever. `kms_key_id` null: it has no key of its own. `index_keys`:
    whether index entries are kept; null: the sorters' setting. `kind`: tidb or raw (RawKV). `state`: active, paused
    (input is not read), deleting (no longer served). `delete_at_ms` (decimal): when it will be deleted; until then it
    is paused, and the deletion can be cancelled."""

    cluster_id: str
    tenant_id: str
    snapshot_ts: str | None
    problem: str | None = None
    retention_ms: str | None = None
    kms_key_id: str | None = None
    index_keys: bool | None = None
    kind: TenantKind = TenantKind.TIDB
    state: str = "active"
    delete_at_ms: str | None = None


class TenantList(Wire):
    """The answer of `GET /v1/clusters/{cluster_id}/tenants`, ordered by name."""

    cluster_id: str
    tenants: list[TenantInfo]


class ChildTask(Wire):
    """A child of a sealed task, which takes over a part of its keys: the child's id and span (hex)."""

    task_id: int
    start_key: str
    end_key: str


class SealOrder(Wire):
    """The owner's order to seal a task: to end its log with a manifest that names `children`, the tasks that replace it
    (design.md 4).

    A split has no `stop_at`. In a merge each task first commits `stop_at`, the flushed_ts that it will end at; when all
    have reached it, `final` orders the seal. `parents`: all tasks that become the one child, in key order.
    """

    children: list[ChildTask]
    stop_at: int | None = None
    final: bool = True
    parents: list[int] = Field(default_factory=list)


class TaskRoute(Wire):
    """One task: its span (hex), its fencing epoch and its sorter (None while no sorter has it).

    The epoch is meant for one process of the sorter's name, which `sorter_start_epoch` identifies: a process that was
    replaced under the same name must not use it.
    """

    task_id: int
    start_key: str
    end_key: str
    task_epoch: int
    sorter_node: str | None
    sorter_url: str | None
    sorter_start_epoch: int | None = None
    next_node: str | None = Field(default=None, description="the sorter that prepares to take it over")
    next_start_epoch: int | None = None
    parents: list[int] = Field(default_factory=list, description="sealed tasks whose state it begins with")
    seal: SealOrder | None = None


class StoreRoute(Wire):
    """One store, and the dispatcher that reads it (None while no dispatcher does)."""

    store_id: int
    dispatcher_node: str | None


class TenantRoute(Wire):
    """A tenant and its tasks in key order. `snapshot_ts` is None and `tasks` is empty until the tenant's schema_snap
    was read; `problem` says what is missing or wrong with it.

    `stores`: the tenant's stores, each with the dispatcher that reads it; None if the meta server's version does not
    assign stores: then a dispatcher reads all stores that it finds. `dispatcher_node`: the dispatcher that looks for
    stores that are not in `stores` yet. `retention_ms` is how long rows are kept after their commit; None: forever.
    `limits` are the tenant's limits. `kms_key_id` encrypts new objects of the tenant; None: the tenant has no key of
    its own. `index_keys`: whether index entries are kept; None: the sorter's setting. `kind`: whether its changes are
    those of a TiDB or of RawKV.
    """

    cluster_id: str
    tenant_id: str
    snapshot_ts: int | None
    tasks: list[TaskRoute]
    problem: str | None = None
    stores: list[StoreRoute] | None = None
    dispatcher_node: str | None = None
    retention_ms: int | None = None
    limits: Limits = NO_LIMITS
    kms_key_id: str | None = None
    index_keys: bool | None = None
    kind: TenantKind = TenantKind.TIDB
    retired_stores: list[int] = Field(
        default_factory=list, description="not read, and not discovered again, until their files are deleted"
    )
    paused: bool = Field(default=False, description="no new changes are processed; existing rows are served")
    erasing: bool = Field(default=False, description="it is being deleted: it is not served, and has no tasks")
    delete_at_ms: int | None = None


class RouteTable(Wire):
    """The answer of `GET /upcall/v1/routes?known_version=N&known_rev=R&wait_ms=M`. It comes at once if the version is
    not N, otherwise after a wait.

    `owner_rev` is the election number of the meta server that made the table; readers ignore the table of an earlier
    owner. If `since` is set, the table contains only the tenants that have changed since that version; the reader keeps
    the others. With `node_id=…` the table contains only the tasks that this node has or is about to take over.
    """

    version: int
    owner_rev: int = 0
    since: int | None = None
    tenants: list[TenantRoute]
    gone: list[tuple[str, str]] = Field(
        default_factory=list, description="(cluster_id, tenant_id) of tenants deleted since `since`"
    )
    services: dict[str, list[str]] = Field(
        default_factory=dict, description="role (dispatcher, sorter, schema, api, meta) -> base URLs alive"
    )

    def kms_key_ids(self) -> dict[TenantKey, str | None]:
        """The id of the KMS key that encrypts each tenant's objects; None if the tenant has no key of its own."""
        return {TenantKey(one.cluster_id, one.tenant_id): one.kms_key_id for one in self.tenants}


class NodeInfo(Wire):
    """One process, as the owner (the elected meta server) knows it. `state`: alive, suspect, lost or draining. `tasks`
    counts a sorter's tasks, `stores` a dispatcher's stores, `shards` the shards of changefeeds that a worker holds."""

    node_id: str
    role: str
    url: str
    state: str
    start_epoch: int
    tasks: int = 0
    stores: int = 0
    shards: int = 0


class NodeList(Wire):
    """The answer of `GET /v1/nodes`, ordered by name."""

    nodes: list[NodeInfo]


class TaskInfo(Wire):
    """One task, as the owner (the elected meta server) knows it. `phase`: absent (no sorter has it), preparing
    (`next_node` reads its state to take it over), committing (given to a sorter that has not reported it yet), running,
    or removing (sealed)."""

    task_id: int
    cluster_id: str
    tenant_id: str
    start_key: str
    end_key: str
    task_epoch: int
    sorter_node: str | None
    next_node: str | None
    phase: str
    load: float | None = None


class TaskInfoList(Wire):
    """The answer of `GET /v1/tasks`, ordered by tenant and key."""

    tasks: list[TaskInfo]


class MoveTask(StrictRequest):
    """`POST /v1/tasks/{task_id}/move`: move the task to the sorter `node_id`, which prepares first."""

    node_id: str


class SplitTask(StrictRequest):
    """`POST /v1/tasks/{task_id}/split`: split the task at this key (hex) or, if null, where it halves the load."""

    key: str | None = None


class MergeTasks(StrictRequest):
    """`POST /v1/tasks/{task_id}/merge`: merge the task with the adjacent task `neighbour`."""

    neighbour: int = Field(ge=1, lt=1 << 62)


class Children(Wire):
    """The answer (202) of a split or a merge: the children's ids."""

    children: list[int]


class DrainNode(StrictRequest):
    """`POST /v1/nodes/{node_id}/drain`: move all work off the node; false ends that."""

    draining: bool = True


class OwnerInfo(Wire):
    """The answer of `GET /v1/owner`: the elected meta server."""

    node_id: str
    url: str
    owner_rev: int
    lease_left_ms: int


class NewStart(Wire):
    """The answer of `POST /upcall/v1/nodes/{node_id}/starts`, which a process calls once, before it registers.
    `start_epoch` is above the numbers of all earlier starts of the node."""

    start_epoch: int


class StartOf(Wire):
    """Identifies a process among those that have had the same node name: its number, and a name that it drew at
    random."""

    instance: str = Field(pattern="^[0-9A-Za-z_.-]{1,63}$")
    start_epoch: int = Field(ge=1, lt=1 << 62)


class RegisterNode(StartOf):
    """`PUT /upcall/v1/nodes/{node_id}`: register a process that has started. A sorter's tasks get new epochs.
    Idempotent for one start. 409 `superseded` if a newer start of that name has registered: the process must end."""

    role: str = Field(pattern="^(dispatcher|sorter|schema|api|meta|ingest|changefeed|agent)$")
    url: str = Field(max_length=URL_MAX)


class Registered(Wire):
    """The answer of RegisterNode. `start_epoch` identifies the process to which the node's name belongs now."""

    start_epoch: int
    route_version: int


class TaskReport(Wire):
    """A sorter's report of one task. The sorter either works on the task under task_epoch; or is `prepared` to take it
    over; or has sealed (ended) it, with the tasks that replace it in `sealed`; or cannot hold it, because its manifests
    were claimed under the newer epoch `fenced_by`. `progress_ts`: the highest progress that the sorter has reported of
    the task. `stop_at`: the ts above which the task no longer flushes, because it will be merged; null without a merge.
    `load`: recent bytes of row groups per second. `split_key` (hex, empty: unknown) splits the task into halves of
    about the same load."""

    task_id: int
    task_epoch: int
    prepared: bool = False
    load: float = Field(default=0.0, ge=0)
    split_key: str = ""
    progress_ts: int = 0
    stop_at: int | None = None  # committed in a manifest: no later holder flushes above it
    sealed: list[ChildTask] = Field(default_factory=list)
    fenced_by: int | None = Field(default=None, ge=0)


class StoreReport(Wire):
    """A dispatcher's report of one store that it reads, or has found although no route names it yet. `load`: recent
    bytes of watermarks and references per second; None while that is unknown."""

    cluster_id: str
    tenant_id: str
    store_id: int = Field(ge=0, lt=1 << 63)
    load: float | None = Field(default=None, ge=0)


class Heartbeat(StartOf):
    """`POST /upcall/v1/nodes/{node_id}/heartbeat`: the process is alive. The answer 404 means that the process must
    register; 409 `superseded` means that it must end, because another one has registered under its name. `owner_rev`
    and `route_version` are those of the newest route table seen."""

    owner_rev: int = Field(default=0, ge=0, lt=1 << 62)
    route_version: int = Field(default=-1, ge=-1, lt=1 << 62)
    sequence: int = Field(default=0, ge=0, description="grows with each heartbeat of a start")
    tasks: list[TaskReport] = Field(default_factory=list, description="of a sorter: all that it holds or is ready for")
    stores: list[StoreReport] = Field(default_factory=list, description="of a dispatcher: all that it reads or found")


class HeartbeatAnswer(Wire):
    """The answer of a heartbeat. `owner_rev` is the election number of the meta server that answered. `next_ms` is the
    time until the next heartbeat: the more nodes, the longer. `calm_ms` is that time for a node that has nothing new to
    report and waits for nothing. `writes` counts what the owner has written: lists that the meta server keeps, such as
    those of sources and restores, have not changed while it stays the same. A meta server of an older version sends
    neither of these two."""

    owner_rev: int
    route_version: int
    next_ms: int = 1_000
    calm_ms: int | None = None
    writes: int | None = None
