"""HTTP routes of territories. They parse requests, call TerritoryBook and translate answers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey, parse_store_id
from tistream.model.span import KeySpan
from tistream.wire.bulk.territories import (
    AddTerritory,
    AgentBeat,
    ReplaceTerritories,
    TerritoryAssignments,
    TerritoryInfo,
    TerritoryKeys,
    TerritoryList,
    TerritoryWork,
)
from tistream_meta.routes.forwarding import OwnersRoute, owned_of
from tistream_meta.territories.agent_board import AgentBoard
from tistream_meta.territories.territory_book import TerritoryBook
from tistream_meta.territories.territory_policy import Territory, Upstream

router = APIRouter(route_class=OwnersRoute)
TERRITORIES = "/v1/clusters/{cluster_id}/tenants/{tenant_id}/territories"


@router.post(TERRITORIES, status_code=201, operation_id="AddTerritory")
def add_territory(
    request: Request, response: Response, cluster_id: str, tenant_id: str, body: AddTerritory
) -> TerritoryInfo:
    """Register a range of a tenant's keys as a territory, which an agent will read. 200 if the same territory exists
    already, 409 if another one has its id or some of its keys."""
    tenant = TenantKey.parse(cluster_id, tenant_id)
    wanted = _territory(tenant, body, _upstream(body))
    found, new = _book(request).add(wanted)
    response.status_code = 201 if new else 200
    return _info(request, found)


@router.post(TERRITORIES + "/replacements", operation_id="ReplaceTerritories")
def replace_territories(request: Request, cluster_id: str, tenant_id: str, body: ReplaceTerritories) -> TerritoryList:
    """Remove territories and add others in one step. 409, and nothing is changed, if one that exists differs or shares
    keys with a new one, or if one of the old ones was removed meanwhile."""
    tenant, upstream = TenantKey.parse(cluster_id, tenant_id), _upstream(body)
    wanted = [_territory(tenant, one, upstream) for one in body.by]
    found = _book(request).replace(tenant, {parse_store_id(one) for one in body.territories}, wanted)
    return TerritoryList(territories=[_info(request, one) for one in found])


@router.get(TERRITORIES, operation_id="ListTerritories")
def list_territories(request: Request, cluster_id: str, tenant_id: str) -> TerritoryList:
    """The territories of a tenant, by id."""
    found = _book(request).of_tenant(TenantKey.parse(cluster_id, tenant_id))
    return TerritoryList(territories=[_info(request, one) for one in found])


@router.delete(TERRITORIES + "/{territory}", operation_id="RemoveTerritory")
def remove_territory(request: Request, cluster_id: str, tenant_id: str, territory: str) -> TerritoryInfo:
    """Remove a territory. Its agent stops reading it. Its files stay."""
    found = _book(request).remove(TenantKey.parse(cluster_id, tenant_id), parse_store_id(territory))
    return _info(request, found)


@router.get("/v1/territories", operation_id="AllTerritories")
def all_territories(request: Request) -> TerritoryList:
    """The territories of all tenants, by tenant and id."""
    return TerritoryList(territories=[_info(request, one) for one in _book(request).every()])


@router.post("/upcall/v1/territories/beats", operation_id="AgentBeat")
def agent_beat(request: Request, body: AgentBeat) -> TerritoryAssignments:
    """Store an agent's reports, and answer with the territories that the agent must hold."""
    board = _board(request)
    board.take(body)
    agents = board.with_beats(owned_of(request).agents())
    held = _book(request).held(body.node_id, body.instance, agents)
    return TerritoryAssignments(territories=[TerritoryWork.model_validate(_work(one)) for one in held])


def _upstream(body: AddTerritory | ReplaceTerritories) -> Upstream:
    return Upstream(body.pd, int(body.pd_cluster_id), body.kind, body.keyspace)


def _territory(tenant: TenantKey, keys: AddTerritory | TerritoryKeys, upstream: Upstream) -> Territory:
    """The territory that a body describes. Raises InvalidRequest."""
    start, end = bytes.fromhex(keys.start_key), bytes.fromhex(keys.end_key)
    if end and start >= end:
        raise InvalidRequest(
            "end_key does not lie above start_key: give a higher one, or an empty one for the last key",
            {"member": "end_key"},
        )
    return Territory(tenant, parse_store_id(keys.territory), KeySpan(start, end), upstream)


def _work(one: Territory) -> dict[str, str | int]:
    return {
        "cluster_id": one.tenant.cluster_id,
        "tenant_id": one.tenant.tenant_id,
        "territory": str(one.store_id),
        "pd": one.upstream.pd,
        "pd_cluster_id": str(one.upstream.pd_cluster_id),
        "kind": one.upstream.kind,
        "keyspace": one.upstream.keyspace,
        "start_key": one.span.start.hex(),
        "end_key": one.span.end.hex(),
        "epoch": one.epoch,
    }


def _info(request: Request, one: Territory) -> TerritoryInfo:
    return TerritoryInfo.model_validate({**_work(one), "node_id": one.node_id, "said": _board(request).said(one)})


def _book(request: Request) -> TerritoryBook:
    found: TerritoryBook = request.app.state.territories
    return found


def _board(request: Request) -> AgentBoard:
    found: AgentBoard = request.app.state.agents
    return found
