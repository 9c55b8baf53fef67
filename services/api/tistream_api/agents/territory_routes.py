"""HTTP routes of the territories of agents. The API server forwards the calls to the meta server."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.errors import UnknownName
from tistream.model.tenant_kind import TenantKind
from tistream.wire.bulk.territories import (
    HEX_KEY,
    KEYSPACE,
    NUMBER,
    PD_MAX,
    REPLACED_BY_MAX,
    TERRITORIES_MAX,
    TerritoryInfo,
    TerritoryList,
)
from tistream.wire.clients.meta_client import MetaClient
from tistream_api.admission import gate
from tistream_api.request.bodies import Body
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT

TERRITORIES = TENANT + "/territories"
_ID = re.compile(NUMBER)
_MEMBERS: dict[str, dict[str, Any]] = {
    "territory": {"type": "string", "pattern": NUMBER},
    "pd": {"type": "string", "minLength": 1, "maxLength": PD_MAX, "example": "pd-1:2379,pd-2:2379"},
    "pd_cluster_id": {"type": "string", "pattern": NUMBER},
    "kind": {"type": "string", "enum": [str(kind) for kind in TenantKind]},
    "keyspace": {"type": "string", "pattern": KEYSPACE},
    "start_key": {"type": "string", "pattern": HEX_KEY},
    "end_key": {"type": "string", "pattern": HEX_KEY},
}
_KEYS = {name: _MEMBERS[name] for name in ("territory", "start_key", "end_key")}
_REPLACED: dict[str, dict[str, Any]] = {
    "territories": {"type": "array", "maxItems": TERRITORIES_MAX, "items": _MEMBERS["territory"]},
    "by": {
        "type": "array",
        "maxItems": REPLACED_BY_MAX,
        "items": {
            "type": "object",
            "required": ["territory"],
            "properties": _KEYS,
            "additionalProperties": False,
        },
    },
    **{name: member for name, member in _MEMBERS.items() if name not in _KEYS},
}


def build_territory_router(meta: MetaClient) -> APIRouter:
    """Build the router of territories. Its routes must be behind the gate (admission/gate.py). Adding a territory
    requires a grant for the platform, because agents connect to the PD that the territory names with their own
    certificates."""
    router = APIRouter(tags=["operate"])

    def answered(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(
        "/v1/territories",
        operation_id="AllTerritories",
        response_model=TerritoryList,
        responses=openapi.OPERATE_PROBLEMS,
    )
    @gate.OPERATE_PLATFORM
    def all_territories() -> Response:
        """The territories of all tenants, each with its agent, its progress and what it waits for."""
        return answered("GET", "/v1/territories")

    @router.post(
        TERRITORIES,
        operation_id="AddTerritory",
        response_model=TerritoryInfo,
        status_code=201,
        responses=openapi.CANCEL_PROBLEMS,
        openapi_extra=openapi.json_doc(_MEMBERS, required=["territory", "pd", "pd_cluster_id"]),
    )
    @gate.OPERATE_PLATFORM
    def add_territory(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Add a territory: a range of keys of a TiDB cluster, whose changes an agent pushes. Returns 200 if the same
        territory exists already, 409 if another one has its id or some of its keys."""
        return answered("POST", f"{at_meta(cluster_id, tenant_id)}/territories", body)

    @router.post(
        TERRITORIES + "/replacements",
        operation_id="ReplaceTerritories",
        response_model=TerritoryList,
        responses=openapi.CANCEL_PROBLEMS,
        openapi_extra=openapi.json_doc(_REPLACED, required=["territories", "by", "pd", "pd_cluster_id"]),
    )
    @gate.OPERATE_PLATFORM
    def replace_territories(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Remove territories and add others in one step, after their keys were divided anew. The call may be repeated.
        Returns 409, and changes nothing, if one that exists differs or shares keys with a new one, or if one of the old
        ones was removed meanwhile."""
        return answered("POST", f"{at_meta(cluster_id, tenant_id)}/territories/replacements", body)

    @router.get(
        TERRITORIES,
        operation_id="ListTerritories",
        response_model=TerritoryList,
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OPERATE_TENANT
    def list_territories(cluster_id: str, tenant_id: str) -> Response:
        """The territories of a tenant, each with its agent, its progress and what it waits for."""
        return answered("GET", f"{at_meta(cluster_id, tenant_id)}/territories")

    @router.delete(
        TERRITORIES + "/{territory}",
        operation_id="RemoveTerritory",
        response_model=TerritoryInfo,
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OPERATE_PLATFORM
    def remove_territory(cluster_id: str, tenant_id: str, territory: str) -> Response:
        """Remove a territory. Its agent stops reading it. Its change files stay."""
        name = name_of(territory)
        if not _ID.fullmatch(name):
            raise UnknownName(
                f"there is no territory {name[:80]!r}: an id is a decimal number without a leading 0; "
                "ListTerritories has the ids"
            )
        return answered("DELETE", f"{at_meta(cluster_id, tenant_id)}/territories/{name}")

    return router
