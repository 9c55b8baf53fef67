"""Whether a node is there: a pure function of its last heartbeat and the time.

            suspect_ms without a heartbeat          lost_ms
    ALIVE ----------------------------> SUSPECT ------------> LOST
      ^                                    |                    |
      +--------------- heartbeat ----------+--------------------+

One that an operator drains is DRAINING in place of ALIVE and SUSPECT, until it is lost or taken back.

A meta server that has just become the owner heard nobody yet: silence counts from its own beginning at the earliest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Liveness(Enum):
    """What is known of a node."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    LOST = "lost"


class NodeState(Enum):
    """What is known of a node, and wanted of it."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    LOST = "lost"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds of silence after which a node is suspect, and after which it is lost."""

    suspect_ms: int
    lost_ms: int

    def __post_init__(self) -> None:
        assert 0 < self.suspect_ms < self.lost_ms


def liveness(heard_ms: int | None, owner_since_ms: int, now_ms: int, timings: Timings) -> Liveness:
    """The state of a node that was last heard at `heard_ms` (None: never by this owner). Monotonic milliseconds."""
    silence_ms = now_ms - max(owner_since_ms, owner_since_ms if heard_ms is None else heard_ms)
    if silence_ms < timings.suspect_ms:
        return Liveness.ALIVE
    return Liveness.SUSPECT if silence_ms < timings.lost_ms else Liveness.LOST


def node_state(state: Liveness, draining: bool) -> NodeState:
    """A node's state, given whether it is to go."""
    return NodeState.DRAINING if draining and state is not Liveness.LOST else NodeState(state.value)
