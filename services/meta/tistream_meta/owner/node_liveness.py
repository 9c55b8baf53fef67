"""Which nodes were heard, and so which are there. In memory: a new owner hears them again within a heartbeat."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream_meta.decide.liveness import NodeState, Timings, liveness, node_state
from tistream_meta.decide.model import Node

log = logging.getLogger(__name__)

BEAT_MS = 1_000
BEATS_A_SECOND = 400  # what one process hears without being busy with it


@dataclass(slots=True)
class HeardNodes:
    """Not thread-safe. Times are monotonic milliseconds."""

    timings: Timings
    states: Mapping[str, NodeState] = field(default_factory=dict)
    _heard_ms: dict[str, int] = field(default_factory=dict)
    _lately: set[str] = field(default_factory=set)
    _routed_lost: set[str] = field(default_factory=set)
    _deaf_since_ms: int | None = None

    def hear(self, node_id: str, now_ms: int) -> None:
        """A node has spoken."""
        self._heard_ms[node_id] = now_ms
        self._lately.add(node_id)

    def next_ms(self) -> int:
        """How soon to hear a node again: each second, or so that so many of them come in one."""
        even = len(self.states) * 1_000 // BEATS_A_SECOND
        return min(max(BEAT_MS, even), max(BEAT_MS, self.timings.suspect_ms // 2))

    def forget(self) -> None:
        """Nobody was heard yet."""
        self._heard_ms.clear()

    def deaf(self, since_ms: int) -> None:
        """No node can be heard: its heartbeats are refused, since the database does not answer."""
        if self._deaf_since_ms is None:
            self._deaf_since_ms = since_ms

    def hears_again(self, now_ms: int) -> None:
        """They can be heard again: what was no fault of theirs is no silence of theirs."""
        if self._deaf_since_ms is not None:
            lost_ms = now_ms - self._deaf_since_ms
            self._heard_ms = {node_id: heard_ms + lost_ms for node_id, heard_ms in self._heard_ms.items()}
            self._deaf_since_ms = None

    def lately(self) -> set[str]:
        """The nodes heard since this was asked before."""
        found, self._lately = self._lately, set()
        return found

    def judge(self, nodes: Iterable[Node], since_ms: int, now_ms: int) -> list[str]:
        """Bring `states` up to date; the nodes whose state is another one now. `since_ms`: of the ownership."""
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
        """Whether a node was lost, or is there again, and the route table does not say so yet."""
        return self._lost() != self._routed_lost

    def routed(self) -> None:
        """A route table says how things are."""
        self._routed_lost = self._lost()

    def _lost(self) -> set[str]:
        return {node_id for node_id, state in self.states.items() if state is NodeState.LOST}
