"""The values that the meta database stores: tenants, tasks, nodes, stores and sources. They are immutable. The
repository converts rows to them."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.wire.limits import NO_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class Retention:
    """How long committed rows are kept after their commit, in ms; None means for ever."""

    ms: int | None

    def __str__(self) -> str:
        return "for ever" if self.ms is None else f"{self.ms} ms"


FOR_EVER = Retention(None)


@dataclass(frozen=True, slots=True)
class Encryption:
    """The key that encrypts a tenant's objects, by its id in the object store's key management; None if the tenant has
    no key of its own."""

    kms_key_id: str | None

    def __str__(self) -> str:
        return "no key of its own" if self.kms_key_id is None else f"key {self.kms_key_id}"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A registered tenant. `snapshot_ts` is None until the tenant's schema_snap has been read; until then `problem`
    says why it could not be read."""

    key: TenantKey
    snapshot_ts: int | None
    problem: str | None
    retention_ms: int | None = None  # None: for ever
    limits: Limits = NO_LIMITS
    kms_key_id: str | None = None  # None: no key of its own
    index_keys: bool | None = None  # whether index entries are kept; None: the sorters' setting applies
    kind: TenantKind = TenantKind.TIDB  # never changes
    paused: bool = False  # no more files are read
    delete_at_ms: int | None = None  # when it is to be erased (the database's clock); None: never
    erasing: bool = False  # it is being erased: it has neither tasks nor stores, and this cannot be undone

    @property
    def accepts_files(self) -> bool:
        """Whether the files of the tenant's stores are read."""
        return not (self.paused or self.erasing or self.delete_at_ms is not None)


@dataclass(frozen=True, slots=True)
class Child:
    """A task that will exist once its parents are sealed. It takes over the keys in this span from them."""

    task_id: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class Seal:
    """The order to end a task by a seal that names `children`: two for a split, one for a merge.

    Tasks to be merged first stop at one flushed_ts, `stop_at`. `final` permits them to seal there. A final order is
    never withdrawn, because one of the tasks may have sealed already.
    """

    children: tuple[Child, ...]
    stop_at: int | None = None
    final: bool = True

    @property
    def merges(self) -> bool:
        return self.stop_at is not None


@dataclass(frozen=True, slots=True)
class Task:
    """A task: a span of a tenant's keys, its sorter, and the next sorter that prepares to take it over. `task_epoch` is
    0 if no sorter ever had the task. `parents` are the sealed tasks that it continues. `seal` is the order to end
    it."""

    task_id: int
    tenant: TenantKey
    span: KeySpan
    sorter_node: str | None
    task_epoch: int
    next_node: str | None = None
    parents: tuple[int, ...] = ()
    seal: Seal | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A registered process: its name, role and URL, and its newest start (incarnations.py). `draining`: an operator
    wants it to have no work."""

    node_id: str
    role: str
    url: str
    start_epoch: int
    instance: str
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """An upstream store and the dispatcher that reads it (None: no dispatcher). If `retired_ts` is set, the store is
    retired, and its files up to that ts are being deleted."""

    tenant: TenantKey
    store_id: int
    dispatcher_node: str | None = None
    retired_ts: int | None = None

    @property
    def key(self) -> tuple[TenantKey, int]:
        return self.tenant, self.store_id


@dataclass(frozen=True, slots=True)
class Source:
    """A source of a tenant. `snapshot_kind` and `snapshot_url` say where the tenant's schema comes from. `upstream_id`
    is the id of the upstream cluster that the bucket states."""

    tenant: TenantKey
    source_id: str
    kind: str
    url: str
    snapshot_kind: str
    snapshot_url: str | None
    upstream_id: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The tenants, tasks, nodes and stores in the database, from which the owner makes the route table (which process
    serves which of them), as of one `version`."""

    version: int
    tenants: tuple[Tenant, ...]
    tasks: tuple[Task, ...]
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction has changed: the new values of changed rows, the ids of the tasks that are `gone`, and the new
    version of the routes. If a tenant in `tenants` is `erasing`, all of its stores are gone too."""

    version: int
    tenants: tuple[Tenant, ...] = ()
    tasks: tuple[Task, ...] = ()
    gone: tuple[int, ...] = ()
    nodes: tuple[Node, ...] = ()
    stores: tuple[Store, ...] = ()
    erased: tuple[TenantKey, ...] = ()  # tenants that do not exist any more
    left: tuple[tuple[TenantKey, int], ...] = ()  # stores that do not exist any more


@dataclass(frozen=True, slots=True)
class Owner:
    """The meta server that holds the lease, or held it last. `lease_left_ms` (by the database's clock) is negative once
    the lease has expired. `version` is that of the newest routes in the database."""

    node_id: str
    owner_rev: int
    url: str
    lease_left_ms: int
    version: int
