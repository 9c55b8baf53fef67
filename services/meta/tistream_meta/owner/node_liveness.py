"""The heartbeats of the nodes, and the state of each node, which is derived from them. They are only in memory, because
every node sends a heartbeat to a new owner within one heartbeat interval."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream_meta.decide.liveness import NodeState, Timings, liveness, node_state
from tistream_meta.decide.model import Node

log = logging.getLogger(__name__)

BEAT_MS = 1_000
CALM_BEAT_MS = 2_000
CALM_MAX_MS = 10_000
_CALM_ROLES = frozenset(("api", "changefeed", "ingest", "schema"))  # their heartbeats say only that they are there
BEATS_A_SECOND = 400  # heartbeats that one process handles without being busy with them


@dataclass(slots=True)
class NodeHeartbeats:
    """The time of the last heartbeat of each node, and the node's state. Not thread-safe. Times are monotonic ms."""

    timings: Timings
    states: Mapping[str, NodeState] = field(default_factory=dict)
    _heard_ms: dict[str, int] = field(default_factory=dict)
    _lately: set[str] = field(default_factory=set)
    _routed_lost: set[str] = field(default_factory=set)
    _suspended_since_ms: int | None = None

    def record(self, node_id: str, now_ms: int) -> None:
        """Record a heartbeat of a node."""
        self._heard_ms[node_id] = now_ms
        self._lately.add(node_id)

    def silence_ms(self, node_id: str, since_ms: int, now_ms: int) -> int:
        """How many ms ago the last heartbeat of a node came. `since_ms`: when this process became the owner, from which
        silence counts at the earliest."""
        return now_ms - max(since_ms, self._heard_ms.get(node_id, since_ms))

    def next_ms(self, role: str) -> int:
        """The interval in ms at which nodes of this role must send heartbeats: one second, two if they report nothing,
        or longer in large clusters, so that the owner gets at most BEATS_A_SECOND heartbeats a second. It is at most
        half of `suspect_ms`, but never below BEAT_MS."""
        even = len(self.states) * 1_000 // BEATS_A_SECOND
        least_ms = CALM_BEAT_MS if role in _CALM_ROLES else BEAT_MS
        return min(max(least_ms, even), max(BEAT_MS, self.timings.suspect_ms // 2))

    def calm_ms(self, next_ms: int) -> int:
        """The interval in ms at which a node that has nothing new to report must send heartbeats, if it is `next_ms`
        otherwise: half of `suspect_ms`, at most CALM_MAX_MS, and at least `next_ms`."""
        return max(next_ms, min(self.timings.suspect_ms // 2, CALM_MAX_MS))

    def steady_ms(self, since_ms: int, now_ms: int) -> int:
        """The ms for which no node becomes suspect or lost if no heartbeat comes; `suspect_ms` if every node is lost,
        or there is no node. `since_ms`: when this process became the owner."""
        limits = self.timings.suspect_ms, self.timings.lost_ms
        silences = [self.silence_ms(node_id, since_ms, now_ms) for node_id in self.states]
        return min((limit - silence for silence in silences for limit in limits if limit > silence), default=limits[0])

    def forget(self) -> None:
        """Forget all heartbeats, because a new owner starts with an empty table."""
        self._heard_ms.clear()

    def suspend(self, since_ms: int) -> None:
        """Record that heartbeats have been refused since `since_ms`, because the database does not answer; `resume`
        makes up for that time. Changes nothing if such a time has begun already."""
        if self._suspended_since_ms is None:
            self._suspended_since_ms = since_ms

    def resume(self, now_ms: int) -> None:
        """Record that heartbeats are accepted again. The last heartbeat of every node is moved by the length of the
        outage that `suspend` has begun, so that an outage of the database does not make nodes look dead."""
        if self._suspended_since_ms is not None:
            lost_ms = now_ms - self._suspended_since_ms
            self._heard_ms = {node_id: heard_ms + lost_ms for node_id, heard_ms in self._heard_ms.items()}
            self._suspended_since_ms = None

    def take_recent(self) -> set[str]:
        """Return the nodes that have sent a heartbeat since the last call of this method, and begin to collect anew."""
        found, self._lately = self._lately, set()
        return found

    def update_states(self, nodes: Iterable[Node], since_ms: int, now_ms: int) -> list[str]:
        """Compute `states` anew, and return the nodes whose state changed. `since_ms`: when this process became the
        owner."""
        before = self.states
        self.states = {
            node.node_id: node_state(
                liveness(self._heard_ms.get(node.node_id), since_ms, now_ms, self.timings), node.draining
            )
            for node in nodes
        }
        turned = [node_id for node_id, state in self.states.items() if before.get(node_id) is not state]
        for node_id in turned:
            old, state = before.get(node_id), self.states[node_id]
            if old is not None or state is not NodeState.ALIVE:
                log.warning("node", extra={"node": node_id, "from": old and old.value, "to": state.value})
        return turned

    @property
    def unrouted(self) -> bool:
        """Whether the set of lost nodes has changed since the last route table was made."""
        return self._lost() != self._routed_lost

    def routed(self) -> None:
        """Record that a route table was made from the current states."""
        self._routed_lost = self._lost()

    def _lost(self) -> set[str]:
        return {node_id for node_id, state in self.states.items() if state is NodeState.LOST}
