"""Who may do what: a decision about grants and what is asked for, without a look at what is there. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tistream.schema.visible import fold
from tistream.wire.tokens import ANY, Action, Grant


@dataclass(frozen=True, slots=True)
class Resource:
    """A table, a database, a tenant, a cluster or, without any name, the platform: with all that is below it."""

    cluster: str | None = None
    tenant: str | None = None
    database: str | None = None
    table: str | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        """As grants compare them: databases and tables without case, as TiDB does."""
        return self.cluster, self.tenant, _folded(self.database), _folded(self.table)


def may(grants: Iterable[Grant], action: Action, resource: Resource) -> bool:
    """Whether one of the grants allows it for all of the resource."""
    return any(action in grant.actions and _covers(grant, resource) for grant in grants)


def may_some(grants: Iterable[Grant], action: Action, resource: Resource) -> bool:
    """Whether one of the grants allows it for the resource or for something in it."""
    return any(action in grant.actions and _touches(grant, resource) for grant in grants)


def parts(grants: Iterable[Grant]) -> list[dict[str, str | None]]:
    """Databases and tables that may be read by grants of less than a tenant; of a whole database the table is None."""
    named = {about(grant) for grant in grants if "read" in grant.actions}
    found = {(one.cluster, one.tenant, one.database, one.table) for one in named if one.database is not None}
    names = ("cluster_id", "tenant_id", "database", "table")
    return [dict(zip(names, one, strict=True)) for one in sorted(found, key=lambda one: [name or "" for name in one])]


def may_give(grants: Iterable[Grant], given: Iterable[Grant]) -> bool:
    """Whether who has `grants` may make, see and revoke a token with `given`: what each is about it may operate."""
    own = list(grants)
    return all(may(own, "operate", about(one)) for one in given)


def about(grant: Grant) -> Resource:
    """What a grant is about."""
    names = [None if name == ANY else name for name in (grant.cluster, grant.tenant, grant.database, grant.table)]
    return Resource(*names)


def _covers(grant: Grant, resource: Resource) -> bool:
    pairs = zip(about(grant).names, resource.names, strict=True)
    return all(granted is None or granted == asked for granted, asked in pairs)


def _touches(grant: Grant, resource: Resource) -> bool:
    pairs = zip(about(grant).names, resource.names, strict=True)
    return all(None in (granted, asked) or granted == asked for granted, asked in pairs)


def _folded(name: str | None) -> str | None:
    return None if name is None else fold(name)
