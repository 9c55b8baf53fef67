"""What going through a window needs of a tenant, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tistream.format.segment import SegmentRef
from tistream.model.ts import Window
from tistream_api.read.cursor import Scope
from tistream_api.read.events import Ddls, Events
from tistream_api.read.plan import GroupRef
from tistream_api.read.row_events import Barrier, Shapes

Ints = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Worked(Generic[T]):
    """`value` was made of these row groups, and is the same whoever makes it. `size`: about its bytes in memory; None:
    it is for nobody but who made it."""

    value: T
    size: int | None
    of: Sequence[GroupRef]


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """The table_id and commit_ts of a row group's rows, and how many bytes had to be decoded to know them."""

    table_id: Ints
    commit_ts: Ints
    decoded_bytes: int


class Source(Protocol):
    """A tenant's pool and schema history, complete up to the window's end."""

    def horizon(self, window: Window, rows: int) -> int:
        """The high end of a stride from the window's low end on whose segments hold about `rows` rows, or more."""

    def segments(self, window: Window) -> Sequence[SegmentRef]:
        """The live segments that may hold rows of the window."""

    def replan(self) -> None:
        """A segment was gone: read the tasks' logs anew."""

    def physical_ids(self, scope: Scope, window: Window) -> Ints | None:
        """The ids, ascending, that the scope's rows may bear in the window; None: any."""

    def shapes(self, scope: Scope, ids: Sequence[int], window: Window) -> Shapes:
        """How the rows of these ids are shown to this scope in the window."""

    def logical_id(self, physical_id: int, commit_ts: int) -> int:
        """The table id that events of this physical id's rows bear; the physical one if none is shown."""

    def ddl_events(self, scope: Scope, window: Window) -> Ddls:
        """The scope's ddl events."""

    def rows(self, group: GroupRef) -> pa.Table:
        """One row group (tistream.format.segment.SCHEMA)."""

    def index(self, group: GroupRef) -> GroupIndex:
        """Which rows a row group holds."""

    def shared(self, key: Hashable, high: int, make: Callable[[], Worked[T]]) -> T:
        """What `make` makes of what is known up to `high`, or what another pull has made with the same key."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that follow those of the batch before.

    With them everything at or below `through` has been given; None: the batch ends inside a crowded commit_ts, one
    that is too large to be held. Before the first batch of a crowded commit_ts comes one with `crowd`, an upper
    bound of its events. After a `barrier` nothing follows; the events end below its commit_ts. `last`: the answer is to
    end behind it, whatever follows.
    """

    events: Events
    through: int | None
    crowd: int | None = None
    barrier: Barrier | None = None
    last: bool = False
