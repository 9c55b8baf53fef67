"""What happens in an emulated cluster, in order: applied commands, and changes of regions and stores. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tistream_upstream.emulator.model.region import Region

PREWRITE, COMMIT, ROLLBACK, COMMITTED, INITIALIZED = 1, 2, 3, 4, 5
PUT, DELETE = 1, 2


class Row(NamedTuple):
    """One row of a command, with the fields of `cdcpb.Event.Row`. Absent numbers are 0, absent bytes empty."""

    type: int
    op: int
    key: bytes
    value: bytes = b""
    old_value: bytes = b""
    start_ts: int = 0
    commit_ts: int = 0
    txn_source: int = 0
    generation: int = 0
    expire_ts: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """A Raft command that a region applies. `at_us`: microseconds since the cluster's beginning."""

    at_us: int
    region_id: int
    index: int
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class RegionsChange:
    """A change of regions: their new state, and the ids of regions that ended by a merge.

    PD sees it `pd_delay_us` later. `silent`: the old leader does not know that there is a new one.
    """

    at_us: int
    regions: Sequence[Region]
    gone: Sequence[int] = ()
    pd_delay_us: int = 0
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Congested:
    """A store ends the subscriptions to a region, because it has no memory for the region's events."""

    at_us: int
    region_id: int


@dataclass(frozen=True, slots=True)
class StoreFault:
    """A fault of a store, which ends all its streams. `what` is `reset`, `down` (it also refuses new streams) or
    `up`."""

    at_us: int
    store_id: int
    what: str


Item = Command | RegionsChange | Congested | StoreFault


class TimelineSource(Protocol):
    """The interface of the sources of an emulated cluster's timeline: a recording, or a simulated cluster."""

    @property
    def base_ts(self) -> int:
        """The ts (TSO) above which the timeline begins."""

    def items(self, to_us: int) -> Iterator[Item]:
        """Return the items that happen up to `to_us`, in order; each item is returned once. The ids of regions in an
        item are those at its time."""

    def tso(self, now_us: int, count: int) -> int:
        """Take `count` timestamps. Returns the last one."""

    def resolved_limit(self, store_id: int, now_us: int) -> int:
        """A ts that bounds later commits: after `now_us`, the store applies no commit at or below it, except of locks
        that exist now. The source keeps this promise from the call on."""
