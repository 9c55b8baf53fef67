"""HTTP routes of secrets. They parse requests, call SecretBook and translate answers. No answer has a secret in clear
text."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tistream.model.ids import TenantKey
from tistream.wire.bulk.secrets import SealedSecret, SealedSecrets, SecretInfo, SecretList, SecretName
from tistream_meta.feeds.secret_book import SecretBook
from tistream_meta.routes.forwarding import OwnersRoute

router = APIRouter(route_class=OwnersRoute)
SECRETS = "/v1/clusters/{cluster_id}/tenants/{tenant_id}/secrets"


@router.put(SECRETS + "/{name}", operation_id="PutSecret")
def put_secret(request: Request, cluster_id: str, tenant_id: str, name: SecretName, body: SealedSecret) -> SecretInfo:
    """Store an encrypted secret; it replaces one of the same name."""
    return _book(request).put(TenantKey.parse(cluster_id, tenant_id), name, body.sealed)


@router.get(SECRETS, operation_id="ListSecrets")
def list_secrets(request: Request, cluster_id: str, tenant_id: str) -> SecretList:
    """The secrets of a tenant, by name, without values."""
    return SecretList(secrets=list(_book(request).of_tenant(TenantKey.parse(cluster_id, tenant_id))))


@router.delete(SECRETS + "/{name}", operation_id="RemoveSecret")
def remove_secret(request: Request, cluster_id: str, tenant_id: str, name: SecretName) -> SecretInfo:
    """Remove a secret. 409 while a changefeed refers to it."""
    return _book(request).remove(TenantKey.parse(cluster_id, tenant_id), name)


@router.get("/upcall" + SECRETS, operation_id="SealedSecrets")
def sealed_secrets(request: Request, cluster_id: str, tenant_id: str) -> SealedSecrets:
    """The encrypted secrets of a tenant, for a worker, which can decrypt them."""
    return SealedSecrets(sealed=dict(_book(request).sealed(TenantKey.parse(cluster_id, tenant_id))))


def _book(request: Request) -> SecretBook:
    found: SecretBook = request.app.state.secrets
    return found
