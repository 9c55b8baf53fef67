"""The last heartbeat (beat) of each agent. It is only in memory, because every agent sends a beat to a new owner within
a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tistream.concurrency import new_lock
from tistream.wire.bulk.territories import AgentBeat, TerritoryState
from tistream_meta.territories.territory_policy import Agent, Territory


class AgentBoard:
    """The newest heartbeat (beat) of each agent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._beats: dict[str, AgentBeat] = {}

    def take(self, beat: AgentBeat) -> None:
        """Store an agent's beat in place of the agent's previous one."""
        with self._lock:
            self._beats[beat.node_id] = beat

    def with_beats(self, agents: Mapping[str, Agent]) -> dict[str, Agent]:
        """Copy the agents and add what their last beats say: whether they request territories (`requests_territories`),
        and which cluster they can reach (`serves`). Beats of an earlier start of an agent are ignored."""
        with self._lock:
            beats = {name: self._beats.get(name) for name in agents}
        found = dict(agents)
        for name, agent in agents.items():
            beat = beats[name]
            if beat is not None and beat.instance == agent.instance:
                found[name] = replace(
                    agent, requests_territories=True, serves=int(beat.serves) if beat.serves else None
                )
        return found

    def said(self, territory: Territory) -> TerritoryState | None:
        """The state of a territory as its agent reported it in the last beat; None if the agent has not reported it
        yet."""
        with self._lock:
            beat = self._beats.get(territory.node_id or "")
        if beat is None or beat.instance != territory.instance:
            return None
        of = (territory.tenant.cluster_id, territory.tenant.tenant_id, str(territory.store_id), territory.epoch)
        for report in beat.reports:
            if (report.cluster_id, report.tenant_id, report.territory, report.epoch) == of:
                return TerritoryState(**report.model_dump(include=set(TerritoryState.model_fields)))
        return None
