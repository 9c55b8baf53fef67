"""Calls of the commands `tistream connect`, `disconnect` and `agent` to the platform's API."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from pydantic import BaseModel

from tistream.errors import InvalidRequest, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.wire.bulk.territories import (
    ReplaceTerritories,
    TerritoryInfo,
    TerritoryKeys,
    TerritoryList,
)
from tistream.wire.clients.client import HttpClient
from tistream.wire.meta import Accepted, DrainNode, NodeInfo, NodeList, TenantInfo, TenantList
from tistream.wire.sorter import Coverage
from tistream_agent.core.chain import Child

_ATTEMPTS = 3


class _NewTenant(BaseModel):
    """The body of the request that creates a tenant. It has only the members that `connect` sets: the wire model
    CreateTenant would send the others as null, which changes an existing tenant."""

    tenant_id: str
    kind: TenantKind


class PlatformApi:
    """A client of the platform's API at a base URL. Its methods raise TiStreamError with the API's reason.

    Args:
        headers: the token, if the API requires one.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers = url.rstrip("/"), dict(headers)

    def register(self, tenant: TenantKey, kind: TenantKind) -> None:
        """Create the tenant. No error if it exists."""
        tenants = f"{self._url}/v1/clusters/{quote(tenant.cluster_id, safe='')}/tenants"
        with self._http() as http:
            body = _NewTenant(tenant_id=tenant.tenant_id, kind=kind)
            http.send("POST", tenants, body, TenantInfo, attempts=_ATTEMPTS)

    def territories(self, tenant: TenantKey) -> dict[int, TerritoryInfo]:
        """The territories of the tenant, by id. Empty if the tenant does not exist."""
        with self._http() as http:
            try:
                found = http.get(self._of(tenant), TerritoryList).territories
            except UnknownName:
                return {}
        return {int(one.territory): one for one in found}

    def replace_territories(self, tenant: TenantKey, wanted: ReplaceTerritories) -> None:
        """Remove territories and create others, in one step. No error if that has been done. Raises AlreadyDiffers if
        one of those to be removed is not there."""
        with self._http() as http:
            http.send("POST", f"{self._of(tenant)}/replacements", wanted, TerritoryList, attempts=_ATTEMPTS)

    def remove_territory(self, tenant: TenantKey, store_id: int) -> bool:
        """Remove a territory; the agent that has it stops. Returns whether the territory existed."""
        with self._http() as http:
            try:
                http.request("DELETE", f"{self._of(tenant)}/{store_id}")
            except UnknownName:
                return False
            return True

    def reached_ts(self, tenant: TenantKey) -> int | None:
        """The ts up to which the platform has every change of the tenant, on all keys; None if it has no snapshot of
        the tenant."""
        cluster, name = quote(tenant.cluster_id, safe=""), quote(tenant.tenant_id, safe="")
        tenants = f"{self._url}/v1/clusters/{cluster}/tenants"
        with self._http() as http:
            try:
                known = {one.tenant_id: one.snapshot_ts for one in http.get(tenants, TenantList).tenants}
            except UnknownName:  # the tenant is the first of its cluster
                return None
            if known.get(tenant.tenant_id) is None:
                return None
            slices = http.get(f"{tenants}/{name}/coverage", Coverage).slices
        return min(int(one.resolved_ts) for one in slices)

    def agents(self) -> tuple[list[NodeInfo], list[TerritoryInfo]]:
        """The agents by name, and the territories of all tenants."""
        with self._http() as http:
            nodes = http.get(f"{self._url}/v1/nodes", NodeList).nodes
            territories = http.get(f"{self._url}/v1/territories", TerritoryList).territories
        return [one for one in nodes if one.role == "agent"], territories

    def drain(self, node: str, *, draining: bool) -> None:
        """Move all territories off an agent, or with `draining` false permit assignments to it again."""
        path = f"{self._url}/v1/nodes/{quote(node, safe='')}/drain"
        with self._http() as http:
            http.send("POST", path, DrainNode(draining=draining), Accepted)

    @contextmanager
    def _http(self) -> Iterator[HttpClient]:
        http = HttpClient(headers=self._headers)
        try:
            yield http
        finally:
            http.close()

    def _of(self, tenant: TenantKey) -> str:
        names = quote(tenant.cluster_id, safe=""), quote(tenant.tenant_id, safe="")
        return "{}/v1/clusters/{}/tenants/{}/territories".format(self._url, *names)


class TerritoryLists(Protocol):
    """The calls by which territories are divided: of the API (PlatformApi), or of the meta servers."""

    def territories(self, tenant: TenantKey) -> Mapping[int, TerritoryInfo]:
        """The territories of the tenant, by id. Empty if the tenant does not exist."""
        ...

    def replace_territories(self, tenant: TenantKey, wanted: ReplaceTerritories) -> None:
        """Remove territories and create others, in one step."""
        ...


@dataclass(frozen=True, slots=True)
class TenantTerritories:
    """The territories that the platform has for one tenant. Each that `replace` creates gets the addresses of PD
    (`pd`), PD's cluster id, the kind, and the name of the keyspace."""

    api: TerritoryLists
    tenant: TenantKey
    pd: str
    pd_cluster_id: int
    kind: TenantKind
    keyspace: str

    def spans(self) -> Mapping[int, KeySpan]:
        """The keys of each territory, by id. Raises InvalidRequest if a territory is of another PD cluster, kind or
        keyspace than this object, because an agent would read the keys there."""
        found = self.api.territories(self.tenant)
        check_same(found, self.kind, self.keyspace, str(self.pd_cluster_id))
        return {
            number: KeySpan(bytes.fromhex(one.start_key), bytes.fromhex(one.end_key)) for number, one in found.items()
        }

    def replace(self, gone: Collection[int], children: Sequence[Child]) -> None:
        """Create the children in place of the territories `gone`, in one step. No error if that has been done. Raises
        AlreadyDiffers if another process has removed some of them."""
        wanted = ReplaceTerritories(
            territories=[str(number) for number in sorted(gone)],
            by=[
                TerritoryKeys(
                    territory=str(child.store_id), start_key=child.span.start.hex(), end_key=child.span.end.hex()
                )
                for child in children
            ],
            pd=self.pd,
            pd_cluster_id=str(self.pd_cluster_id),
            kind=self.kind,
            keyspace=self.keyspace,
        )
        self.api.replace_territories(self.tenant, wanted)


def check_same(
    found: Mapping[int, TerritoryInfo], kind: TenantKind, keyspace: str, pd_cluster_id: str | None = None
) -> None:
    """Check that each territory in `found` (those of a tenant, by id) has this kind and this keyspace and, unless
    `pd_cluster_id` is None, is of this PD cluster. Raises InvalidRequest if one does not."""
    for number, one in found.items():
        cluster = one.pd_cluster_id if pd_cluster_id is None else pd_cluster_id
        if (one.pd_cluster_id, one.kind, one.keyspace) != (cluster, kind, keyspace):
            raise InvalidRequest(
                f"territory {number} is of PD cluster {one.pd_cluster_id}, --kind {one.kind.value} and --keyspace "
                f"{one.keyspace!r}, the command of {cluster}, {kind.value} and {keyspace!r}: give what the territory "
                "has"
            )


def agent_rows(nodes: Sequence[NodeInfo], territories: Sequence[TerritoryInfo]) -> list[tuple[str, ...]]:
    """The lines of `tistream agent list`, as cells. Each agent has a line for each of its territories, or one with
    dashes if it has none. Lines for the territories whose agent is not in `nodes` follow."""
    rows: list[tuple[str, ...]] = []
    for node in nodes:
        own = [one for one in territories if one.node_id == node.node_id]
        rows += [(node.node_id, node.state, *_cells(one)) for one in own] or [(node.node_id, node.state, *"-----")]
    named = {node.node_id for node in nodes}
    return rows + [(one.node_id or "-", "-", *_cells(one)) for one in territories if one.node_id not in named]


def _cells(one: TerritoryInfo) -> tuple[str, ...]:
    said = one.said
    lag = "-" if said is None or said.resolved_ts == "0" else f"{said.lag_ms / 1000:.1f} s"
    state, reason = ("-", "no agent has reported it yet") if said is None else (said.state, said.reason)
    return f"{one.cluster_id}/{one.tenant_id}", one.territory, state, lag, reason or "-"


def as_table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as text in aligned columns. The last column is not padded."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)
