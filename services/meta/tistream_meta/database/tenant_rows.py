"""Reads and writes the rows of tenants and clusters. Every function runs inside a transaction of the repository."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, update

from tistream.errors import AlreadyDiffers, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream.wire.limits import Limits
from tistream_meta.database import tables
from tistream_meta.decide.model import Encryption, Retention, Tenant

Rule = Retention | Encryption | Limits  # what an operator sets of a tenant

_SAME = and_(
    tables.quotas.c.cluster_id == tables.tenants.c.cluster_id, tables.quotas.c.tenant_id == tables.tenants.c.tenant_id
)
_INDEX_KEYS = {None: "as the sorters have it", False: "dropped", True: "kept"}
_ALL = select(tables.tenants, *(tables.quotas.c[name] for name in tables.LIMITS)).select_from(
    tables.tenants.outerjoin(tables.quotas, _SAME)
)


def create(
    connection: Connection,
    key: TenantKey,
    wanted: Retention | None,
    encryption: Encryption | None,
    default: Retention,
    now_ms: ColumnElement[int],
    index_keys: bool | None = None,
    kind: TenantKind | None = None,
) -> tuple[Tenant, bool]:
    """Insert a tenant, and its cluster if this is the cluster's first tenant. Returns (the tenant, whether it is new).

    An existing tenant is compared with those of `wanted`, `encryption`, `index_keys` and `kind` that are not None. For
    a new tenant, None means `default`, no encryption key of its own, the sorters' setting for index keys, and the kind
    TiDB. Raises AlreadyDiffers if the tenant exists with other values or is being deleted.
    """
    clusters, tenants = tables.clusters, tables.tenants
    found = connection.execute(_ALL.where(is_key(key))).one_or_none()
    if found is not None:
        known = _tenant(found)
        if known.erasing:
            raise AlreadyDiffers(
                f"tenant {key} is being deleted: use another name, or wait until `tistream tenant list` does not "
                "show it"
            )
        if wanted is not None and wanted.ms != known.retention_ms:
            raise AlreadyDiffers(
                f"tenant {key} exists with a retention of {Retention(known.retention_ms)}: `tistream tenant "
                "retention` changes it"
            )
        if encryption is not None and encryption.kms_key_id != known.kms_key_id:
            raise AlreadyDiffers(
                f"tenant {key} exists with {Encryption(known.kms_key_id)}: `tistream tenant key` changes it"
            )
        if index_keys is not None and index_keys is not known.index_keys:
            raise AlreadyDiffers(
                f"tenant {key} exists with index keys {_INDEX_KEYS[known.index_keys]}, which cannot be changed: "
                "leave index_keys out"
            )
        if kind is not None and kind is not known.kind:
            raise AlreadyDiffers(
                f"tenant {key} exists with the kind {known.kind}, which cannot be changed: use another tenant id"
            )
        return known, False
    if connection.execute(select(clusters).where(clusters.c.cluster_id == key.cluster_id)).one_or_none() is None:
        connection.execute(insert(clusters).values(cluster_id=key.cluster_id, created_ms=now_ms))
    retention = default if wanted is None else wanted
    names = {"cluster_id": key.cluster_id, "tenant_id": key.tenant_id}
    kms_key_id = None if encryption is None else encryption.kms_key_id
    kept = {
        "retention_ms": retention.ms,
        "kms_key_id": kms_key_id,
        "index_keys": None if index_keys is None else int(index_keys),
        "kind": None if kind is None else kind.value,
    }
    connection.execute(insert(tenants).values(**names, created_ms=now_ms, **kept))
    for used in (tables.tenant_usage, tables.tenant_stored):  # reported late, for a deleted tenant of that name
        connection.execute(delete(used).where(used.c.cluster_id == key.cluster_id, used.c.tenant_id == key.tenant_id))
    stored = kind or TenantKind.TIDB
    return Tenant(key, None, None, retention.ms, kms_key_id=kms_key_id, index_keys=index_keys, kind=stored), True


def set_problem(connection: Connection, key: TenantKey, problem: str) -> Tenant | None:
    """Store why a tenant cannot start yet. Returns None if the same reason is stored already, or if the tenant has
    started."""
    tenants = tables.tenants
    changed = connection.execute(
        update(tenants)
        .where(is_key(key), tenants.c.snapshot_ts.is_(None))
        .where(tenants.c.problem.is_(None) | (tenants.c.problem != problem))
        .values(problem=problem)
    )
    return one(connection, key) if changed.rowcount else None


def start(connection: Connection, key: TenantKey, snapshot_ts: int) -> Tenant | None:
    """Store the snapshot_ts of a tenant, which starts it. Returns None if the tenant has started before, or is being
    erased."""
    tenants = tables.tenants
    changed = connection.execute(
        update(tenants)
        .where(is_key(key), tenants.c.snapshot_ts.is_(None), tenants.c.erasing == 0)
        .values(snapshot_ts=snapshot_ts, problem=None)
    )
    return one(connection, key) if changed.rowcount == 1 else None


def set_rule(connection: Connection, key: TenantKey, rule: Rule) -> tuple[Tenant, bool]:
    """Store one rule of a tenant: retention, encryption key or quotas. Returns (the tenant, whether it changed). Raises
    UnknownName."""
    known, tenants, quotas = one(connection, key), tables.tenants, tables.quotas
    match rule:
        case Retention(ms):
            wanted = replace(known, retention_ms=ms)
        case Encryption(kms_key_id):
            wanted = replace(known, kms_key_id=kms_key_id)
        case Limits():
            wanted = replace(known, limits=rule)
    if wanted == known:
        return known, False
    if wanted.limits != known.limits:
        names = {"cluster_id": key.cluster_id, "tenant_id": key.tenant_id}
        of_tenant = and_(quotas.c.cluster_id == key.cluster_id, quotas.c.tenant_id == key.tenant_id)
        connection.execute(delete(quotas).where(of_tenant))
        connection.execute(insert(quotas).values(**names, **wanted.limits.model_dump()))
    else:
        kept = {"retention_ms": wanted.retention_ms, "kms_key_id": wanted.kms_key_id}
        connection.execute(update(tenants).where(is_key(key)).values(**kept))
    return wanted, True


def of_cluster(connection: Connection, cluster_id: str) -> tuple[Tenant, ...]:
    """The tenants of a cluster, by name. Raises UnknownName if the cluster never had a tenant."""
    clusters, tenants = tables.clusters, tables.tenants
    if connection.execute(select(clusters).where(clusters.c.cluster_id == cluster_id)).one_or_none() is None:
        raise UnknownName(
            f"there is no cluster {cluster_id}: a cluster exists once it has a tenant (`tistream tenant create`)"
        )
    query = _ALL.where(tenants.c.cluster_id == cluster_id).order_by(tenants.c.tenant_id)
    return tuple(map(_tenant, connection.execute(query)))


def every(connection: Connection) -> tuple[Tenant, ...]:
    """All tenants, ordered by cluster and name."""
    tenants = tables.tenants
    return tuple(map(_tenant, connection.execute(_ALL.order_by(tenants.c.cluster_id, tenants.c.tenant_id))))


def one(connection: Connection, key: TenantKey) -> Tenant:
    """The row of a tenant. Raises UnknownName."""
    found = find(connection, key)
    if found is None:
        raise UnknownName(
            f"there is no tenant {key}: `tistream tenant list` has the ids, and `tistream tenant create` makes one"
        )
    return found


def find(connection: Connection, key: TenantKey) -> Tenant | None:
    """The row of a tenant; None if it does not exist."""
    found = connection.execute(_ALL.where(is_key(key))).one_or_none()
    return None if found is None else _tenant(found)


def is_key(key: TenantKey) -> ColumnElement[bool]:
    """The SQL condition that selects a tenant's row."""
    tenants = tables.tenants
    return and_(tenants.c.cluster_id == key.cluster_id, tenants.c.tenant_id == key.tenant_id)


def _tenant(row: Row[Any]) -> Tenant:
    key = TenantKey(row.cluster_id, row.tenant_id)
    limits = Limits(**{name: getattr(row, name) for name in tables.LIMITS})
    return Tenant(
        key,
        row.snapshot_ts,
        row.problem,
        row.retention_ms,
        limits,
        row.kms_key_id,
        index_keys=None if row.index_keys is None else bool(row.index_keys),
        kind=TenantKind.TIDB if row.kind is None else TenantKind(row.kind),
        paused=bool(row.paused),
        delete_at_ms=row.delete_at_ms,
        erasing=bool(row.erasing),
    )
