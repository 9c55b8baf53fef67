"""A tenant, a database or a table that a call reads, and its URL path."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Scope:
    """A tenant, one of its databases, or one of its tables."""

    cluster: str
    tenant: str
    database: str | None = None
    table: str | None = None

    def path(self, *more: str) -> str:
        """The URL path of the scope; with `more`, of a resource below it. Names are percent-encoded."""
        parts = ["v1", "clusters", self.cluster, "tenants", self.tenant]
        if self.database is not None:
            parts += ["databases", self.database]
        if self.table is not None:
            parts += ["tables", self.table]
        return "/" + "/".join(quote(part, safe="") for part in [*parts, *more])

    @property
    def whole_tenant(self) -> Scope:
        """The scope of the tenant itself."""
        return Scope(self.cluster, self.tenant)

    def __str__(self) -> str:
        below = ".".join(part for part in (self.database, self.table) if part is not None)
        return f"{self.cluster}/{self.tenant}{' ' if below else ''}{below}"
