"""What the audit log has of a thing: a name, and the values that somebody can change. Pure; no secret is among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tistream.model.ids import TenantKey
from tistream.wire.tokens import TokenInfo, home
from tistream_meta.decide.model import Node, Task, Tenant

Values = Mapping[str, Any]

READ: Values = {"retired": False}  # a store that is read
RETIRED: Values = {"retired": True}


@dataclass(frozen=True, slots=True)
class Subject:
    """What was changed. `tenant`: whose it is; None: nobody's, or several tenants'."""

    name: str
    tenant: TenantKey | None = None


def of_tenant(tenant: Tenant | None) -> Values | None:
    """None: it is not there."""
    if tenant is None:
        return None
    names = ("retention_ms", "kms_key_id", "index_keys", "paused", "delete_at_ms", "erasing")
    return {**{name: getattr(tenant, name) for name in names}, "quotas": tenant.limits.model_dump()}


def of_task(task: Task) -> Values:
    """Who has it, and what it is about to become."""
    seal = task.seal
    children = (
        None if seal is None else [[one.task_id, one.span.start.hex(), one.span.end.hex()] for one in seal.children]
    )
    return {"sorter_node": task.sorter_node, "next_node": task.next_node, "children": children}


def of_node(node: Node) -> Values:
    """What an operator says of it."""
    return {"draining": node.draining}


def retired(through_ts: int) -> Values:
    """A store that is let go, and up to where its files go."""
    return {**RETIRED, "through_ts": str(through_ts)}


def of_token(token: TokenInfo) -> Values:
    """Neither its secret nor that one's hash."""
    grants = [grant.model_dump() for grant in token.grants]
    return {
        "label": token.label,
        "grants": grants,
        "expires_ms": token.expires_ms,
        "revoked": token.revoked_ms is not None,
    }


def tenant(key: TenantKey) -> Subject:
    """A tenant."""
    return Subject(f"tenant {key}", key)


def store(key: TenantKey, store_id: int) -> Subject:
    """An upstream store of a tenant's."""
    return Subject(f"store {store_id} of tenant {key}", key)


def task(one: Task) -> Subject:
    """A task, which is its tenant's."""
    return Subject(f"task {one.task_id}", one.tenant)


def node(name: str) -> Subject:
    """A process, which serves every tenant."""
    return Subject(f"node {name}")


def token(one: TokenInfo) -> Subject:
    """A token, which is the tenant's that its grants are about."""
    of = home(one.grants)
    return Subject(f"token {one.token_id}", None if of is None else TenantKey(*of))


def differing(was: Values | None, became: Values | None) -> tuple[Values | None, Values | None]:
    """Both without the members that are the same in both."""
    if was is None or became is None:
        return was, became
    names = [name for name in {**was, **became} if was.get(name) != became.get(name)]
    return {name: was.get(name) for name in names}, {name: became.get(name) for name in names}
