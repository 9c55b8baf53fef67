"""The timeline of an emulated cluster: applied commands, and changes of regions and stores, in order. Pure."""

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
    """A Raft command of a region, at `at_us` since the cluster's beginning."""

    at_us: int
    region_id: int
    index: int
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class RegionsChange:
    """A change of regions: their new state, and the ids of regions that ended by a merge.

    PD learns of it `pd_delay_us` later. `silent`: the old leader does not know the new one.
    """

    at_us: int
    regions: Sequence[Region]
    gone: Sequence[int] = ()
    pd_delay_us: int = 0
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Congested:
    """The subscriptions of a region are ended because the store has no memory for their events."""

    at_us: int
    region_id: int


@dataclass(frozen=True, slots=True)
class StoreFault:
    """A store ends all its streams; `what` is `reset`, `down` (it also refuses new ones) or `up`."""

    at_us: int
    store_id: int
    what: str


Item = Command | RegionsChange | Congested | StoreFault


class TimelineSource(Protocol):
    """The source of a cluster's timeline."""

    @property
    def base_ts(self) -> int:
        """The ts (TSO) above which the timeline begins."""

    def items(self, to_us: int) -> Iterator[Item]:
        """The items that happen up to `to_us` and were not returned before, in order. The ids of regions in an item are
        those at its time."""

    def tso(self, now_us: int, count: int) -> int:
        """Take `count` timestamps; returns the last one."""

    def resolved_limit(self, store_id: int, now_us: int) -> int:
        """A ts at or below which the store will apply no commit after `now_us`, unless its lock exists now. The source
        keeps this promise from the call on."""
