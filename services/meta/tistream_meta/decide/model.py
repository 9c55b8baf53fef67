"""What the repository keeps, as values."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.wire.limits import NO_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class Retention:
    """How long committed rows are kept: milliseconds after their commit; None: for ever."""

    ms: int | None

    def __str__(self) -> str:
        return "for ever" if self.ms is None else f"{self.ms} ms"


FOR_EVER = Retention(None)


@dataclass(frozen=True, slots=True)
class Encryption:
    """What a tenant's objects are encrypted with: a key of its own, as the store's key management names it, or none."""

    kms_key_id: str | None

    def __str__(self) -> str:
        return "no key of its own" if self.kms_key_id is None else f"key {self.kms_key_id}"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A registered tenant. `snapshot_ts` is None until its schema_snap was read; `problem` says why."""

    key: TenantKey
    snapshot_ts: int | None
    problem: str | None
    retention_ms: int | None = None  # None: for ever
    limits: Limits = NO_LIMITS
    kms_key_id: str | None = None  # None: no key of its own
    index_keys: bool | None = None  # whether index entries are kept; None: as the sorters have it
    paused: bool = False  # nothing more is taken in
    delete_at_ms: int | None = None  # when it is to be erased (the database's clock); None: never
    erasing: bool = False  # it is being erased: it has neither tasks nor stores, and nothing takes that back

    @property
    def takes_in(self) -> bool:
        """Whether what its stores push is read."""
        return not (self.paused or self.erasing or self.delete_at_ms is not None)


@dataclass(frozen=True, slots=True)
class Child:
    """A task to be: it carries on what is sealed for this span."""

    task_id: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class Seal:
    """The order to end a task by a seal that names `children`: two of a split, one of a merge.

    Tasks that are merged first come to rest at one flushed_ts, `stop_at`; `final` lets them seal there, and is never
    taken back: one of them may have done it.
    """

    children: tuple[Child, ...]
    stop_at: int | None = None
    final: bool = True

    @property
    def merges(self) -> bool:
        return self.stop_at is not None


@dataclass(frozen=True, slots=True)
class Task:
    """A tenant's span, who serves it, and who prepares to. `task_epoch` 0: nobody ever did.

    parents: the sealed tasks that it began with. seal: the order to end it.
    """

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
    """A process that registered: the newest start under its name; see incarnations.py."""

    node_id: str
    role: str
    url: str
    start_epoch: int
    instance: str
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """An upstream store, and the dispatcher that reads it (None: nobody does). `retired_ts`: it is let go, and its
    files up to there are being deleted."""

    tenant: TenantKey
    store_id: int
    dispatcher_node: str | None = None
    retired_ts: int | None = None

    @property
    def key(self) -> tuple[TenantKey, int]:
        return self.tenant, self.store_id


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that routes are made of, as of one `version`."""

    version: int
    tenants: tuple[Tenant, ...]
    tasks: tuple[Task, ...]
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction has changed: rows as they are after it, tasks that are `gone`, the version of the routes. A
    tenant that is `erasing` has no stores any more."""

    version: int
    tenants: tuple[Tenant, ...] = ()
    tasks: tuple[Task, ...] = ()
    gone: tuple[int, ...] = ()
    nodes: tuple[Node, ...] = ()
    stores: tuple[Store, ...] = ()
    erased: tuple[TenantKey, ...] = ()  # tenants that are no more
    left: tuple[tuple[TenantKey, int], ...] = ()  # stores that are no more


@dataclass(frozen=True, slots=True)
class Owner:
    """The meta server that holds the lease, or held it last. `lease_left_ms` (the database's clock) is negative once it
    has run out."""

    node_id: str
    owner_rev: int
    url: str
    lease_left_ms: int
