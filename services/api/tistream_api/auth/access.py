"""Decides whether a caller may do something (authorization), from grants and the requested resource alone, without
looking at what exists. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tistream.schema.visible import fold
from tistream.wire.api import ReadablePart
from tistream.wire.tokens import ANY, Action, Grant


@dataclass(frozen=True, slots=True)
class Resource:
    """What a grant or a request is about: a table, a database, a tenant, a cluster, or the platform if no name is set.
    A resource includes everything below it."""

    cluster: str | None = None
    tenant: str | None = None
    database: str | None = None
    table: str | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names in the form in which grants are compared: databases and tables without regard to case, as in
        TiDB."""
        return self.cluster, self.tenant, _folded(self.database), _folded(self.table)


def allows(grants: Iterable[Grant], action: Action, resource: Resource) -> bool:
    """Whether one of the grants allows the action on all of the resource."""
    return any(action in grant.actions and _covers(grant, resource) for grant in grants)


def allows_part(grants: Iterable[Grant], action: Action, resource: Resource) -> bool:
    """Whether one of the grants allows the action on the resource or on something inside it."""
    return any(action in grant.actions and _touches(grant, resource) for grant in grants)


def readable_parts(grants: Iterable[Grant]) -> list[ReadablePart]:
    """The databases and tables that these grants allow their holder to read. Grants on a whole tenant or more are left
    out. `table` is null for a whole database."""
    named = {resource_of(grant) for grant in grants if "read" in grant.actions}
    found = {(one.cluster, one.tenant, one.database, one.table) for one in named if one.database is not None}
    names = ("cluster_id", "tenant_id", "database", "table")
    ordered = sorted(found, key=lambda one: [name or "" for name in one])
    return [ReadablePart.model_validate(dict(zip(names, one, strict=True))) for one in ordered]


def may_manage(grants: Iterable[Grant], given: Iterable[Grant]) -> bool:
    """Whether a caller with `grants` may create, see and revoke a token with the grants `given`: it must have `operate`
    on the resource of each of them."""
    own = list(grants)
    return all(allows(own, "operate", resource_of(one)) for one in given)


def resource_of(grant: Grant) -> Resource:
    """The resource to which a grant refers."""
    names = [None if name == ANY else name for name in (grant.cluster, grant.tenant, grant.database, grant.table)]
    return Resource(*names)


def _covers(grant: Grant, resource: Resource) -> bool:
    pairs = zip(resource_of(grant).names, resource.names, strict=True)
    return all(granted is None or granted == asked for granted, asked in pairs)


def _touches(grant: Grant, resource: Resource) -> bool:
    pairs = zip(resource_of(grant).names, resource.names, strict=True)
    return all(None in (granted, asked) or granted == asked for granted, asked in pairs)


def _folded(name: str | None) -> str | None:
    return None if name is None else fold(name)
