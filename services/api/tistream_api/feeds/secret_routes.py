"""HTTP routes of a tenant's secrets. This process encrypts each secret with the public key of the changefeed workers,
and sends it on only in that form."""

from __future__ import annotations

import re

from fastapi import APIRouter
from fastapi.responses import Response
from nacl.public import PublicKey

from tistream.errors import InvalidRequest, SecretsOff
from tistream.model.ids import TenantKey
from tistream.secrets.pem import check_pem
from tistream.secrets.references import NAME
from tistream.secrets.sealing import seal
from tistream.wire.bulk.secrets import VALUE_MAX, PutSecret, SealedSecret, SecretInfo, SecretList
from tistream.wire.clients.meta_client import MetaClient
from tistream_api.admission import gate
from tistream_api.request.bodies import Body, read
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT

SECRETS = TENANT + "/secrets"
SECRET = SECRETS + "/{name}"
_PUT = openapi.json_doc(
    {"value": {"type": "string", "minLength": 1, "maxLength": VALUE_MAX, "writeOnly": True}}, required=["value"]
)


def build_secret_router(meta: MetaClient, key: PublicKey | None) -> APIRouter:
    """Build the router of secrets. Its routes must be behind the gate (admission/gate.py). If `key` is None, this
    server cannot encrypt and refuses to store secrets."""
    router = APIRouter(tags=["changefeed"])

    def answered(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.put(
        SECRET,
        operation_id="PutSecret",
        response_model=SecretInfo,
        responses=openapi.CANCEL_PROBLEMS,
        openapi_extra=_PUT,
    )
    @gate.FEED_TENANT
    def put_secret(cluster_id: str, tenant_id: str, name: str, body: Body) -> Response:
        """Store a secret of the tenant, in place of one of the same name. Changefeeds that refer to it use the new
        value within ten seconds. No call returns it. A value that begins as PEM does must be whole."""
        secret = _named(name)
        value = read(PutSecret, body).value.get_secret_value()
        check_pem(value)
        if key is None:
            raise SecretsOff(
                "this API server cannot seal secrets: set TISTREAM_API__SECRETS_PUBLIC_FILE to the public key of the "
                "workers"
            )
        of = TenantKey.parse(name_of(cluster_id), name_of(tenant_id))
        sealed = SealedSecret(sealed=seal(key, of, secret, value))
        return answered("PUT", _path(cluster_id, tenant_id, secret), sealed.model_dump_json().encode())

    @router.get(SECRETS, operation_id="ListSecrets", response_model=SecretList, responses=openapi.TENANT_PROBLEMS)
    @gate.FEED_TENANT
    def list_secrets(cluster_id: str, tenant_id: str) -> Response:
        """The names of the tenant's secrets, and which changefeeds refer to them."""
        return answered("GET", f"{at_meta(cluster_id, tenant_id)}/secrets")

    @router.delete(SECRET, operation_id="RemoveSecret", response_model=SecretInfo, responses=openapi.CANCEL_PROBLEMS)
    @gate.FEED_TENANT
    def remove_secret(cluster_id: str, tenant_id: str, name: str) -> Response:
        """Remove a secret. 409 while a changefeed refers to it."""
        return answered("DELETE", _path(cluster_id, tenant_id, _named(name)))

    return router


def _named(name: str) -> str:
    text = name_of(name)
    if not re.fullmatch(NAME, text):
        raise InvalidRequest(f"{text[:80]!r} is not a secret's name: 1 to 63 of a-z, 0-9, `.` and `-`")
    return text


def _path(cluster_id: str, tenant_id: str, name: str) -> str:
    return f"{at_meta(cluster_id, tenant_id)}/secrets/{name}"
