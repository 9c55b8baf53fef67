"""Builds paths of the meta server from names that users gave."""

from __future__ import annotations

from tistream.model.ids import TenantKey
from tistream_api.request.raw_path import name_of


def at_meta(cluster_id: str, tenant_id: str | None = None) -> str:
    """The path of a cluster's tenants, or of one tenant, at the meta server. Raises InvalidRequest for an invalid name,
    such as `..`, so that no name can lead to another path."""
    key = TenantKey.parse(name_of(cluster_id), "any" if tenant_id is None else name_of(tenant_id))
    path = f"/v1/clusters/{key.cluster_id}/tenants"
    return path if tenant_id is None else f"{path}/{key.tenant_id}"
