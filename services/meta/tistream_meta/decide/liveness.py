"""Liveness of a node: a pure function of its last heartbeat and the time.

            suspect_ms without a heartbeat          lost_ms
    ALIVE ----------------------------> SUSPECT ------------> LOST
      ^                                    |                    |
      +--------------- heartbeat ----------+--------------------+

A node that an operator drains is DRAINING in place of ALIVE and SUSPECT, until it is lost or the drain is taken back.

A new owner has not received any heartbeat, so a node's silence counts from the beginning of the ownership at the
earliest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Liveness(Enum):
    """Liveness of a node, from its heartbeats alone."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    LOST = "lost"


class NodeState(Enum):
    """Liveness of a node, or that it is being drained."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    LOST = "lost"
    DRAINING = "draining"


def is_lost(node: str | None, nodes: Mapping[str, NodeState]) -> bool:
    """Whether the work of a node must go to another node: the node is lost or not known, or no node has the work."""
    return node is None or nodes.get(node, NodeState.LOST) is NodeState.LOST


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds without a heartbeat after which a node is suspect, and after which it is lost."""

    suspect_ms: int
    lost_ms: int

    def __post_init__(self) -> None:
        assert 0 < self.suspect_ms < self.lost_ms


def liveness(heard_ms: int | None, owner_since_ms: int, now_ms: int, timings: Timings) -> Liveness:
    """The liveness of a node whose last heartbeat came at `heard_ms` (None: none since this owner began). Monotonic
    milliseconds.
    """
    silence_ms = now_ms - max(owner_since_ms, owner_since_ms if heard_ms is None else heard_ms)
    if silence_ms < timings.suspect_ms:
        return Liveness.ALIVE
    return Liveness.SUSPECT if silence_ms < timings.lost_ms else Liveness.LOST


def node_state(state: Liveness, draining: bool) -> NodeState:
    """A node's state, given whether an operator drains it."""
    return NodeState.DRAINING if draining and state is not Liveness.LOST else NodeState(state.value)
