"""Agents as processes that a platform gives the territories of an emulated TiKV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import golden, plain_http
from support.agent_process import AgentProcess
from support.emulated import EmulatedTikv
from support.golden import GoldenSet
from support.platform import Platform
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream_agent.core.chain import new_chain
from tistream_agent.core.cutter import Draft


def agents_tenant(up: Platform, name: str, of: str = "everything") -> GoldenSet:
    """The set `of` whose changes the TiKV has, as a tenant of this name, with its schema."""
    loaded = golden.load_as(of, "8", name)
    golden.put(up.objects, loaded.schema_snap)
    return loaded


def territory_agent(up: Platform, tenant: TenantKey, name: str, folder: Path) -> AgentProcess:
    """An agent that the platform gives territories; not started."""
    settings = {
        **dict.fromkeys(("PD", "CLUSTER", "TENANT"), ""),
        "NODE_ID": name,
        "META_URL": f"http://127.0.0.1:{up.ports()['meta']}",
        "SERVICE_KEY_FILE": str(up.data_dir / "secrets" / "service.key"),
        "CUT_MS": "200",
        "IDLE_CUT_MS": "500",
    }
    return AgentProcess("", tenant, up.objects, folder / f"{name}.log", settings, up.service_headers)


def connect(up: Platform, tikv: EmulatedTikv, loaded: GoldenSet) -> None:
    """Begin the chain at the recorded snapshot, which the registry deletes, and register the territory."""
    begin = new_chain(WHOLE, loaded.snapshot_ts)
    draft = Draft(
        tenant=loaded.tenant,
        store_id=1,
        ts=begin.next_ts,
        prev_ts=0,
        nonce="c0ffee",
        epoch=0,
        promises=begin.promises,
        carried=begin.promises,
        changes=(),
        watermarks=(),
        size=0,
    )
    DirectoryObjectStore(up.objects).put_new(draft.key, draft.data())
    body = {"territory": "1", "pd": tikv.address, "pd_cluster_id": str(tikv.cluster_id)}
    of = loaded.tenant
    path = f"{up.url}/v1/clusters/{of.cluster_id}/tenants/{of.tenant_id}/territories"
    with plain_http.patient_client() as http:
        answer = http.post(path, json=body)
    assert answer.status_code in (200, 201), answer.text  # 200: a call before had done it, and was answered by a 503


def territories(up: Platform, tenant: TenantKey) -> list[dict[str, Any]]:
    """The territories of the tenant, by id, as the API lists them."""
    answer = plain_http.patient_get(f"{up.url}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/territories")
    assert answer.status_code == 200, answer.text
    listed: list[dict[str, Any]] = answer.json()["territories"]
    return listed


def running(up: Platform, tenant: TenantKey) -> dict[int, str]:
    """The agent of each territory that runs."""
    return {
        int(one["territory"]): one["node_id"]
        for one in territories(up, tenant)
        if (one["said"] or {}).get("state") == "running"
    }


def holder_of(up: Platform, tenant: TenantKey) -> tuple[str | None, str]:
    """(the agent that holds the tenant's territory, the state that it has reported)."""
    [one] = territories(up, tenant)
    return one["node_id"], (one["said"] or {}).get("state", "")
