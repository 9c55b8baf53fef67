"""The interface between a scan and the tenant that it reads, and the batches that a scan yields."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from tistream.arrays import Int64s
from tistream.format.segment import SegmentRef
from tistream.model.ts import Window
from tistream.read.cursor import Position, Scope
from tistream.read.events import Ddls, Events
from tistream.read.plan import GroupRef
from tistream.read.row_events import Barrier, Shapes

T = TypeVar("T")

Alive = Callable[[], None]
"""Checks that the reader of a scan is still there. What it raises ends the scan."""


def always() -> None:
    """Do nothing: the Alive check of a reader that never leaves."""


@dataclass(frozen=True, slots=True)
class DerivedResult(Generic[T]):
    """A result that a pull computed from the row groups `of`. It is the same for every reader. `size` is its
    approximate size in bytes; None: it is not shared."""

    value: T
    size: int | None
    of: Sequence[GroupRef]


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """What is known of each row in a row group without its values: table_id and commit_ts. `decoded_bytes`: how many
    bytes had to be decoded for that."""

    table_id: Int64s
    commit_ts: Int64s
    decoded_bytes: int


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """What the footer of a segment states of a row group: the bounds, inclusive, of its raw keys and of `op`. None if
    it states none."""

    keys: tuple[bytes, bytes] | None
    ops: tuple[int, int] | None


class Excluded(Protocol):
    """Decides, without reading rows, which row groups no event that the reader wants can come from."""

    @property
    def key(self) -> Hashable:
        """Equal for instances that decide equally. It is kept with results that readers share, so it is small."""

    def __call__(self, group: GroupRef, window: Window) -> bool:
        """Whether no row of the group in the window gives an event that the reader wants."""


class ScanSource(Protocol):
    """A tenant's committed rows and schema history. Both must be complete up to the end of the window that is read."""

    def horizon(self, window: Window, rows: int) -> int:
        """The ts up to which a scan should look for row groups next, from the window's low end on. The segments up to
        it hold about `rows` rows or more."""

    def segments(self, window: Window) -> Sequence[SegmentRef]:
        """The live segments that may hold rows of the window."""

    def replan(self) -> None:
        """Read the tasks' manifests again, because a segment has disappeared."""

    def physical_ids(self, scope: Scope, window: Window) -> Int64s | None:
        """The physical ids, ascending, that rows of the scope may have in the window; None: any id."""

    def shapes(self, scope: Scope, ids: Sequence[int], window: Window) -> Shapes:
        """The table versions with which rows of these physical ids are decoded in the window, if the scope includes
        their table."""

    def logical_id(self, physical_id: int, commit_ts: int) -> int:
        """The table id that events of this physical id's rows have; the physical id itself if its table is not visible.
        For RawKV: the keyspace + 1."""

    def ddl_events(self, scope: Scope, window: Window) -> Ddls:
        """The DDL events of the scope in the window."""

    def rows(self, group: GroupRef) -> pa.Table:
        """The rows of one row group (tistream.format.segment.SCHEMA)."""

    def index(self, group: GroupRef) -> GroupIndex:
        """Read the table_id and commit_ts of each row in a row group."""

    def statistics(self, group: GroupRef) -> GroupStatistics:
        """Read the statistics of a row group. Its rows are not read."""

    def shared(self, key: Hashable, high: int, make: Callable[[Alive], DerivedResult[T]], alive: Alive) -> T:
        """Call `make`, or return the result of another pull that called it with the same key. The result depends only
        on data up to the ts `high`. `alive` raises if the caller's reader has left. `make` is called with a check that
        raises once all readers that wait for the result have left."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that follow those of the previous batch.

    After this batch, every event at or below `through` has been returned. `through` is None if the batch ends inside a
    crowded commit_ts, which is too large to be in memory at once. A batch with `crowd`, an upper bound of its events,
    precedes the first batch of a crowded commit_ts. No batch follows one with a `barrier`, whose events end below the
    barrier's commit_ts. `last`: the answer must end after this batch. `looked_at`: a position up to which a filter has
    dropped what is not in `events`; None: `through`, or the last event.
    """

    events: Events
    through: int | None
    crowd: int | None = None
    barrier: Barrier | None = None
    last: bool = False
    looked_at: Position | None = None
