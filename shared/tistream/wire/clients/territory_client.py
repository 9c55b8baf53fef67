"""Calls to the meta servers about territories, the spans of keys that agents read."""

from __future__ import annotations

from tistream.wire.bulk.territories import AgentBeat, ReplaceTerritories, TerritoryAssignments, TerritoryList
from tistream.wire.clients.client import parse
from tistream.wire.clients.meta_client import BEAT_DEADLINE_S, MetaClient

_BEATS = "/upcall/v1/territories/beats"


def beat_territories(meta: MetaClient, beat: AgentBeat) -> TerritoryAssignments:
    """Report the territories that an agent holds. The answer lists those that it must hold. Raises Unavailable;
    UnknownName if the meta server's version has no territories."""
    body = beat.model_dump_json().encode()
    return parse(_BEATS, meta.request("POST", _BEATS, body, BEAT_DEADLINE_S), TerritoryAssignments)


def territories_of(meta: MetaClient, tenant_path: str) -> TerritoryList:
    """The territories of a tenant. `tenant_path` is the tenant's URL path at the meta servers. Raises Unavailable,
    UnknownName."""
    path = f"{tenant_path}/territories"
    return parse(path, meta.request("GET", path, None, BEAT_DEADLINE_S), TerritoryList)


def replace_territories(meta: MetaClient, tenant_path: str, wanted: ReplaceTerritories) -> TerritoryList:
    """Replace territories of a tenant by others, in one step. `tenant_path` is as in territories_of. Returns the
    tenant's territories. Raises Unavailable, UnknownName, LimitReached, and AlreadyDiffers, also if another call
    has removed one of them."""
    path = f"{tenant_path}/territories/replacements"
    return parse(path, meta.request("POST", path, wanted.model_dump_json().encode()), TerritoryList)
