"""Converts tenants, tasks, tokens and other subjects of changes to what the audit log records: a name, and the values
that operators can change. Pure. No value is secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tistream.model.ids import TenantKey
from tistream.wire.audit import SignedRead
from tistream.wire.bulk.restores import NewRestore
from tistream.wire.tokens import ANY, TokenInfo
from tistream_meta.decide.feed_policy import Feed
from tistream_meta.decide.model import Node, Source, Task, Tenant

Values = Mapping[str, Any]

READ: Values = {"retired": False}  # a store that is read
RETIRED: Values = {"retired": True}
NOT_SIGNED: Values = {"signed": None}  # a tenant, before an answer of SignedChanges


@dataclass(frozen=True, slots=True)
class Subject:
    """What a change was made to. `name` states its kind and its name. The entry of the audit log belongs to `tenant`;
    None: it belongs to no tenant."""

    name: str
    tenant: TenantKey | None = None


def of_tenant(tenant: Tenant | None) -> Values | None:
    """The values of a tenant that the audit log records; None if the tenant does not exist."""
    if tenant is None:
        return None
    names = ("retention_ms", "kms_key_id", "index_keys", "kind", "paused", "delete_at_ms", "erasing")
    return {**{name: getattr(tenant, name) for name in names}, "quotas": tenant.limits.model_dump()}


def of_task(task: Task) -> Values:
    """The values of a task that the audit log records: its sorter, its next sorter, and, if the task is ordered to
    split or merge, its children."""
    seal = task.seal
    children = (
        None if seal is None else [[one.task_id, one.span.start.hex(), one.span.end.hex()] for one in seal.children]
    )
    return {"sorter_node": task.sorter_node, "next_node": task.next_node, "children": children}


def of_node(node: Node) -> Values:
    """The values of a node that the audit log records: those that operators can set."""
    return {"draining": node.draining}


def retired(through_ts: int) -> Values:
    """The values of a retired store that the audit log records: the ts up to which its files are deleted."""
    return {**RETIRED, "through_ts": str(through_ts)}


def of_source(source: Source) -> Values:
    """The values of a source that the audit log records. The URL has no credentials (tistream.storage.open)."""
    names = ("kind", "url", "snapshot_kind", "snapshot_url")
    return {name: getattr(source, name) for name in names}


def of_restore(wanted: NewRestore) -> Values:
    """The values of a restore that the audit log records, without the location of its target."""
    names = [f"{one.database}.{one.table}" for one in wanted.tables]
    return {"ts": wanted.ts, "target": wanted.target.kind, "if_exists": wanted.if_exists, "tables": names}


def of_signed(read: SignedRead) -> Values:
    """The values of a tenant that the audit log records for an answer of SignedChanges."""
    return {"signed": read.model_dump()}


def of_changefeed(feed: Feed) -> Values:
    """The values of a changefeed that the audit log records. Its sink_uri and its configuration have no password."""
    return {
        "state": feed.state,
        "sink_uri": feed.sink_uri,
        "config": json.loads(feed.config),
        "start_ts": str(feed.start_ts),
        "end_ts": feed.end_ts,
        "checkpoint_ts": None if feed.moved is None else str(feed.moved.ts),
        "skips": [one.model_dump() for one in feed.skips],
    }


def of_token(token: TokenInfo) -> Values:
    """The values of a token that the audit log records, without its secret and its hash."""
    grants = [grant.model_dump() for grant in token.grants]
    return {
        "label": token.label,
        "grants": grants,
        "expires_ms": token.expires_ms,
        "revoked": token.revoked_ms is not None,
    }


def tenant(key: TenantKey) -> Subject:
    """The audit subject for a tenant."""
    return Subject(f"tenant {key}", key)


def store(key: TenantKey, store_id: int) -> Subject:
    """The audit subject for an upstream store of a tenant."""
    return Subject(f"store {store_id} of tenant {key}", key)


def source(one: Source) -> Subject:
    """The audit subject for a source of a tenant."""
    return Subject(f"source {one.source_id} of tenant {one.tenant}", one.tenant)


def restore(key: TenantKey, restore_id: str) -> Subject:
    """The audit subject for a restore of a tenant."""
    return Subject(f"restore {restore_id} of tenant {key}", key)


def changefeed(feed: Feed) -> Subject:
    """The audit subject for a changefeed of a tenant."""
    return Subject(f"changefeed {feed.feed_id}", feed.tenant)


def secret(key: TenantKey, name: str) -> Subject:
    """The audit subject for a secret of a tenant."""
    return Subject(f"secret {name}", key)


def task(one: Task) -> Subject:
    """The audit subject for a task. It belongs to the task's tenant."""
    return Subject(f"task {one.task_id}", one.tenant)


def node(name: str) -> Subject:
    """The audit subject for a process. It belongs to no tenant, because a process serves every tenant."""
    return Subject(f"node {name}")


def token(one: TokenInfo) -> list[Subject]:
    """The audit subjects for a token: one for each tenant that its grants name, so that a change of the token is among
    the entries of each. One that belongs to no tenant, if a grant is for all tenants of a cluster."""
    name, of = f"token {one.token_id}", sorted({(grant.cluster, grant.tenant) for grant in one.grants})
    if not of or any(tenant_id == ANY for _, tenant_id in of):
        return [Subject(name)]
    return [Subject(name, TenantKey(*key)) for key in of]


def differing(was: Values | None, became: Values | None) -> tuple[Values | None, Values | None]:
    """Copies of both sets of values without the members that are equal in both. A member that only one of them has is
    None in the copy of the other. If one of the sets is None, both are returned as they are."""
    if was is None or became is None:
        return was, became
    names = [name for name in {**was, **became} if was.get(name) != became.get(name)]
    return {name: was.get(name) for name in names}, {name: became.get(name) for name in names}
