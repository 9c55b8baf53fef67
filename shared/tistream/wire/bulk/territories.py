"""Territories: spans of a tenant's keys that agents read from TiKV, and which agent holds each (docs/agent.md)."""

from typing import Annotated

from pydantic import Field, Strict

from tistream.model.tenant_kind import TenantKind
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

HEX_KEY = "^([0-9a-f]{2}){0,1024}$"
NUMBER = "^[1-9][0-9]{0,19}$"
PD_MAX = 1_024
TERRITORIES_MAX = 256  # of a tenant
REPLACED_BY_MAX = 64  # the most territories into which `tistream agent divide` divides
KEYSPACE = "^([A-Za-z0-9_-]{0,64}|\\*)$"


class AddTerritory(StrictRequest):
    """`POST /v1/clusters/{cluster_id}/tenants/{tenant_id}/territories`: make an agent read a span of keys of the
    tenant. The answer is 201, also if the tenant has this territory already; 409 if the existing one differs, or if the
    new one shares keys with another territory of the tenant.

    `territory`: the id, which is the store id of its files. `pd`: addresses of PD, host:port, separated by commas.
    `pd_cluster_id`: the id that PD must have. `kind`, `keyspace`: as the agent's settings of these names. `start_key`,
    `end_key`: its span of keys (hex); an empty start is the first key, an empty end is +infinity.
    """

    territory: str = Field(pattern=NUMBER)
    pd: str = Field(min_length=1, max_length=PD_MAX)
    pd_cluster_id: str = Field(pattern=NUMBER)
    kind: Annotated[TenantKind, Strict(False)] = TenantKind.TIDB
    keyspace: str = Field(default="", pattern=KEYSPACE)
    start_key: str = Field(default="", pattern=HEX_KEY)
    end_key: str = Field(default="", pattern=HEX_KEY)


class TerritoryKeys(StrictRequest):
    """A territory of ReplaceTerritories, and its span of keys, as in AddTerritory."""

    territory: str = Field(pattern=NUMBER)
    start_key: str = Field(default="", pattern=HEX_KEY)
    end_key: str = Field(default="", pattern=HEX_KEY)


class ReplaceTerritories(StrictRequest):
    """`POST /v1/clusters/{cluster_id}/tenants/{tenant_id}/territories/replacements`: remove territories and add others
    in one step, after their keys were divided anew. The call may be repeated. The answer lists the tenant's
    territories; 409, and nothing is changed, if one that exists differs or shares keys with a new one, or if not all of
    the old ones exist, and neither do all of the new ones: then another call has removed one.

    `territories`: the ids that are removed. `by`: the new ones. The other members are those of AddTerritory, for all of
    the new ones.
    """

    territories: list[Annotated[str, Field(pattern=NUMBER)]] = Field(max_length=TERRITORIES_MAX)
    by: list[TerritoryKeys] = Field(max_length=REPLACED_BY_MAX)
    pd: str = Field(min_length=1, max_length=PD_MAX)
    pd_cluster_id: str = Field(pattern=NUMBER)
    kind: Annotated[TenantKind, Strict(False)] = TenantKind.TIDB
    keyspace: str = Field(default="", pattern=KEYSPACE)


class TerritoryState(Wire):
    """The state of a territory that its agent reports.

    `state`: `starting`, `running`, or the code of a stop: `fenced`, `gc`, `upstream`, `compatibility`,
    `cluster_id_mismatch`, `chain`, `sealed`. `reason`: what the agent waits for, or why it stopped and what to do.
    `resolved_ts`: all changes up to it are in files. `lag_ms`: age of that ts. `span`: the keys whose changes are
    furthest behind, in hexadecimal. `subscriptions`: the number of pieces into which the agent has divided the
    territory's keys; it subscribes to each piece on its own. `buffer_bytes`: the bytes of rows that are in no durable
    file yet. `held_ts`: the ts at which the agent holds back garbage collection.
    """

    state: str
    reason: str = ""
    resolved_ts: str = "0"
    lag_ms: int = 0
    span: tuple[str, str] = ("", "")
    subscriptions: int = 0
    buffer_bytes: int = 0
    held_ts: str = "0"


class TerritoryReport(TerritoryState):
    """An agent's report of a territory that it holds under `epoch`."""

    cluster_id: str
    tenant_id: str
    territory: str
    epoch: int


class AgentBeat(Wire):
    """`POST /upcall/v1/territories/beats`: an agent reports the territories that it holds. The answer lists those that
    it must hold. `serves`: the id of the only PD cluster that the agent can reach; empty: any."""

    node_id: str
    instance: str
    serves: str = ""
    reports: list[TerritoryReport]


class TerritoryWork(Wire):
    """A territory that an agent must hold. `epoch`: the number of the assignment, which is higher for each new
    holder."""

    cluster_id: str
    tenant_id: str
    territory: str
    pd: str
    pd_cluster_id: str
    kind: TenantKind
    keyspace: str
    start_key: str
    end_key: str
    epoch: int


class TerritoryAssignments(Wire):
    """The answer of AgentBeat: all territories that the agent must hold from now on. The agent stops all others."""

    territories: list[TerritoryWork]


class TerritoryInfo(TerritoryWork):
    """A territory, its holder (null: no agent has it), and in `said` the holder's last report; null until the first
    report."""

    node_id: str | None = None
    said: TerritoryState | None = None


class TerritoryList(Wire):
    """The answer of `GET /v1/territories` and of a tenant's list, ordered by tenant and id."""

    territories: list[TerritoryInfo]
