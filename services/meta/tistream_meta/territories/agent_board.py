"""What agents have said with their last beats. In memory only: every agent says it again to a new owner in a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tistream.concurrency import new_lock
from tistream.wire.bulk.territories import AgentBeat, TerritoryState
from tistream_meta.territories.territory_policy import Agent, Territory


class AgentBoard:
    """The newest beat of each agent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._beats: dict[str, AgentBeat] = {}

    def take(self, beat: AgentBeat) -> None:
        """Keep an agent's beat."""
        with self._lock:
            self._beats[beat.node_id] = beat

    def asking(self, agents: Mapping[str, Agent]) -> dict[str, Agent]:
        """The agents with what their beats say: whether they ask for territories, and of which cluster. What a former
        start of an agent said does not count."""
        with self._lock:
            beats = {name: self._beats.get(name) for name in agents}
        found = dict(agents)
        for name, agent in agents.items():
            beat = beats[name]
            if beat is not None and beat.instance == agent.instance:
                found[name] = replace(agent, asks=True, serves=int(beat.serves) if beat.serves else None)
        return found

    def said(self, territory: Territory) -> TerritoryState | None:
        """What the holder says of a territory; None: nothing yet."""
        with self._lock:
            beat = self._beats.get(territory.node_id or "")
        if beat is None or beat.instance != territory.instance:
            return None
        of = (territory.tenant.cluster_id, territory.tenant.tenant_id, str(territory.store_id), territory.epoch)
        for report in beat.reports:
            if (report.cluster_id, report.tenant_id, report.territory, report.epoch) == of:
                return TerritoryState(**report.model_dump(include=set(TerritoryState.model_fields)))
        return None
