"""Validates names that clients choose, and builds identities from them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tistream.errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_STORE = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True, order=True)
class TenantKey:
    """The identity of an upstream tenant: the id of its cluster, and its own id. `parse` ensures that both are safe in
    an object key."""

    cluster_id: str
    tenant_id: str

    @classmethod
    def parse(cls, cluster_id: str, tenant_id: str) -> TenantKey:
        """Validate both ids. Raises InvalidRequest, which names the invalid id."""
        for what, name in (("cluster_id", cluster_id), ("tenant_id", tenant_id)):
            if not _NAME.fullmatch(name):
                raise InvalidRequest(f"{what} {name[:80]!r} is not of the form {_NAME.pattern}")
        return cls(cluster_id, tenant_id)

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.tenant_id}"


def parse_store_id(store_id: str) -> int:
    """Parse a store id, a decimal integer below 2^63. Raises InvalidRequest."""
    if not _STORE.fullmatch(store_id) or int(store_id) >= 2**63:
        raise InvalidRequest(f"store_id {store_id[:80]!r} is not a decimal integer below 2^63")
    return int(store_id)
