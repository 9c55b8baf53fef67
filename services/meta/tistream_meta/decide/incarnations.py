"""Decides which start of a process (its incarnation) may use a node's name. Pure.

A process draws its `instance` at random and requests one number, `start_epoch`, before it registers. It keeps both for
its life. The numbers come from one counter that only grows. So among the starts under one name, the one that requested
its number last wins, and no clock is needed. Messages that the network repeats or reorders, or that wait in the buffer
of a meta server that hangs, do not change that:

* a request for a number that comes late or twice uses up a number;
* a registration that comes twice has the registered instance: nothing changes;
* a registration of a replaced start has a lower number than its successor's, so it is refused.

A list of replaced instances would not be enough, because it cannot name a start whose first registration has not
arrived.

A database that was lost counts from the beginning again. A process that registered before the loss may then have a
number above the registered one although it is not the newer start. Two starts may also have the same number; the
instance distinguishes them, and the registered one stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tistream_meta.decide.model import Node


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a process: its number, and its random name."""

    instance: str
    start_epoch: int


class StartStatus(Enum):
    """Whether a process start may use its node's name: it is the registered start; or it may register; or a newer start
    has replaced it."""

    REGISTERED = "registered"
    UNKNOWN = "unknown"  # not registered; may register
    SUPERSEDED = "superseded"  # a newer start has registered; must end itself


def start_status(registered: Node | None, start: Start) -> StartStatus:
    """Decide the StartStatus of a process start. `registered` is the node that has its name; None if no node has."""
    if registered is None:
        return StartStatus.UNKNOWN
    if registered.instance == start.instance:
        return StartStatus.REGISTERED
    return StartStatus.UNKNOWN if start.start_epoch > registered.start_epoch else StartStatus.SUPERSEDED
