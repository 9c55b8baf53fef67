"""What `/status` says about a territory. Pure."""

from __future__ import annotations

from pydantic import BaseModel


class TerritoryStatus(BaseModel):
    """Of one territory.

    `state`: `starting`, `running`, or the code of a stop: `fenced`, `gc`, `upstream`, `compatibility`,
    `cluster_id_mismatch`. `reason`: what it waits for, or why it stopped and the way out. `resolved_ts`: all changes up
    to it are in files. `lag_ms`: age of that ts. `span`: the keys that are furthest behind, in hexadecimal.
    """

    territory: str
    state: str
    reason: str = ""
    resolved_ts: str = "0"
    lag_ms: int = 0
    span: tuple[str, str] = ("", "")
    subscriptions: int = 0
    buffer_bytes: int = 0
    held_ts: str = "0"


class AgentStatus(BaseModel):
    """The answer of `GET /status`."""

    node_id: str
    cluster_id: str
    tenant_id: str
    pd_cluster_id: str
    territories: list[TerritoryStatus]
