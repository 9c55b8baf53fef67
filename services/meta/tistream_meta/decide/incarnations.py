"""Which start of a process its name belongs to. Pure.

A process draws its `instance` at random and asks for one number, `start_epoch`, before it registers; it keeps both for
its life. The numbers come from one counter that only grows, so of the starts of a name the one that asked last wins,
and no clock is asked. Whatever the network repeats or reorders, and whatever waits in the buffer of a meta server that
hangs, changes nothing in that:

* an ask that comes late or twice uses up a number;
* a registration that comes twice bears the registered instance: nothing changes;
* a registration of a start that was replaced bears a lower number than its successor's: it is refused. A list of
  replaced instances would not do: it cannot name one whose first registration is still under way.

A database that was lost counts from the beginning again. A number above the registered one is then news from before,
not an older start; two starts may bear one number, and the instance tells them apart: who is registered stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tistream_meta.decide.model import Node


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a process, as it says itself."""

    instance: str
    start_epoch: int


class Standing(Enum):
    """What a start is to the name that it bears."""

    REGISTERED = "registered"
    UNKNOWN = "unknown"  # may register
    SUPERSEDED = "superseded"  # has to end


def standing(registered: Node | None, start: Start) -> Standing:
    """Of a start, given who is registered under its name."""
    if registered is None:
        return Standing.UNKNOWN
    if registered.instance == start.instance:
        return Standing.REGISTERED
    return Standing.UNKNOWN if start.start_epoch > registered.start_epoch else Standing.SUPERSEDED
