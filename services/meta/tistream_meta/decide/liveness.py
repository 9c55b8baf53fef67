"""Decides whether a node is alive, suspect or lost, from its last heartbeat and the time. Pure.

            suspect_ms without a heartbeat          lost_ms
    ALIVE ----------------------------> SUSPECT ------------> LOST
      ^                                    |                    |
      +--------------- heartbeat ----------+--------------------+

A node that an operator drains is DRAINING in place of ALIVE and SUSPECT, until it is lost or the operator ends the
drain. A new owner has not received any heartbeat, so a node's silence counts from the beginning of the ownership at the
earliest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Liveness(Enum):
    """Whether a node's heartbeats arrive (ALIVE), or have not arrived for `suspect_ms` (SUSPECT) or for `lost_ms`
    (LOST)."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    LOST = "lost"


class NodeState(Enum):
    """The liveness of a node; DRAINING while an operator drains it."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    LOST = "lost"
    DRAINING = "draining"


def is_lost(node: str | None, nodes: Mapping[str, NodeState]) -> bool:
    """Whether another node must take over the work of `node`: the node is lost or not known, or it is None, because no
    node has the work."""
    return node is None or nodes.get(node, NodeState.LOST) is NodeState.LOST


@dataclass(frozen=True, slots=True)
class Timings:
    """After how many ms without a heartbeat a node is suspect, and after how many it is lost."""

    suspect_ms: int
    lost_ms: int

    def __post_init__(self) -> None:
        assert 0 < self.suspect_ms < self.lost_ms


def liveness(heard_ms: int | None, owner_since_ms: int, now_ms: int, timings: Timings) -> Liveness:
    """The liveness of a node at `now_ms`. `heard_ms`: when its last heartbeat came; None if none has come since this
    owner began. All times are monotonic ms."""
    silence_ms = now_ms - max(owner_since_ms, owner_since_ms if heard_ms is None else heard_ms)
    if silence_ms < timings.suspect_ms:
        return Liveness.ALIVE
    return Liveness.SUSPECT if silence_ms < timings.lost_ms else Liveness.LOST


def node_state(state: Liveness, draining: bool) -> NodeState:
    """The state of a node with this liveness. `draining`: an operator drains it."""
    return NodeState.DRAINING if draining and state is not Liveness.LOST else NodeState(state.value)
