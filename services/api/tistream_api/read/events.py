"""Events of a pull as columns: their place in the order, and what they say. Pure.

What an event says is kept as it was decoded, in typed columns: it becomes text, or Arrow, when it is sent
(encoding.py). So an answer that is cut renders nothing that it does not send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import TableVersion
from tistream_api.read.cursor import Place, Position

Ints = npt.NDArray[np.int64]

_KEY = pa.binary()
_OBJECT_BYTES = 2_048  # what an array or an event of a DDL takes besides its cells, generously


@dataclass(frozen=True, slots=True)
class Image:
    """One side of some committed rows, decoded: null where a row has no such side."""

    columns: Sequence[pa.Array]  # the visible ones
    keys: Sequence[pa.Array]  # the key's; of a table without one: the integer handle, `_tidb_rowid`


@dataclass(frozen=True, slots=True)
class Rows:
    """Row events of one physical table in one of its versions, in no order; all arrays have one element an event.

    An event shows row `new_at` of `new`, and as it was before row `old_at` of `old`; -1 is none. A delete has no new
    row. An image that no event shows is None.
    """

    version: TableVersion
    new: Image | None
    old: Image | None
    commit_ts: Ints
    start_ts: Ints
    schema_version: Ints
    op: Ints  # 0 delete, 1 put
    new_at: Ints
    old_at: Ints
    raw: pa.Array  # raw keys

    def __len__(self) -> int:
        return len(self.op)

    @property
    def arrays(self) -> list[pa.Array]:
        """What has buffers, which may be parts of larger ones."""
        return [self.raw, *(one for image in (self.new, self.old) if image for one in (*image.columns, *image.keys))]


@dataclass(frozen=True, slots=True)
class Ddls:
    """Ddl events, in order. `number` counts those of one commit_ts from 1."""

    events: tuple[DdlEvent, ...]

    def __len__(self) -> int:
        return len(self.events)

    @property
    def commit_ts(self) -> Ints:
        return np.array([event.commit_ts for event in self.events], np.int64)

    @property
    def number(self) -> Ints:
        same = groupby(self.events, key=lambda event: event.commit_ts)
        return np.array([at for _, found in same for at, _ in enumerate(found, 1)], np.int64)


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order in which they are sent: number i is event `at[i]` of `sets[source[i]]`."""

    sets: tuple[Rows | Ddls, ...]
    commit_ts: Ints
    place: Ints  # Place.ROW or Place.DDL
    start_ts: Ints
    table_id: Ints  # logical; of a ddl event its number
    op: Ints
    source: Ints
    at: Ints

    def __len__(self) -> int:
        return len(self.commit_ts)

    @property
    def held_bytes(self) -> int:
        """About how much memory is held while they are: whole buffers, also where few of their bytes are shown."""
        rows = [one for one in self.sets if isinstance(one, Rows)]
        arrays = [array for one in rows for array in one.arrays]
        buffers = {buffer.address: buffer.size for array in arrays for buffer in array.buffers() if buffer is not None}
        numbers = (len(fields(self)) - 1) * len(self) + (len(fields(Rows)) - 4) * sum(map(len, rows))
        objects = len(arrays) + sum(len(one) for one in self.sets if isinstance(one, Ddls)) + 1
        cells: int = sum(buffers.values())
        return cells + 8 * numbers + _OBJECT_BYTES * objects

    @property
    def rows(self) -> int:
        """How many of them are rows."""
        return int(np.count_nonzero(self.place == int(Place.ROW)))

    @classmethod
    def ordered(cls, sets: Sequence[Rows | Ddls]) -> Events:
        """Put events into order: design.md 5, "Order"."""
        sets = tuple(one for one in sets if len(one))
        numbers = [_joined([_numbers(one, name) for one in sets]) for name in range(5)]
        source = _joined([np.full(len(one), number) for number, one in enumerate(sets)])
        at = _joined([np.arange(len(one)) for one in sets])
        commit_ts, place, start_ts, table_id, op = numbers
        events = cls(sets, commit_ts, place, start_ts, table_id, op, source, at)
        if not ascend(events._order):
            events = events._take(np.lexsort(events._order[::-1]))
        return events if events._keys_ascend() else events._take(events._with_keys())

    @property
    def _order(self) -> list[Ints]:
        return [self.commit_ts, self.place, self.start_ts, self.table_id, self.op]

    def _take(self, places: Ints | slice) -> Events:
        columns = [getattr(self, field.name)[places] for field in fields(self)[1:]]
        return Events(self.sets, *columns)

    def first(self, count: int) -> Events:
        """The first `count` events."""
        return self._take(slice(0, count))

    def before(self, commit_ts: int) -> Events:
        """The events whose commit_ts lies below `commit_ts`."""
        return self.first(int(np.searchsorted(self.commit_ts, commit_ts, side="left")))

    def after(self, at: Position) -> Events:
        """The events that follow a position."""
        if at.place is Place.DONE:
            start = int(np.searchsorted(self.commit_ts, at.commit_ts, side="right"))
        else:
            low, high = (int(np.searchsorted(self.commit_ts, at.commit_ts, side=side)) for side in ("left", "right"))
            while low < high:  # bisect: within a commit_ts the events stand in order of their positions
                middle = (low + high) // 2
                low, high = (low, middle) if self.position(middle) > at else (middle + 1, high)
            start = low
        return self._take(slice(start, None))

    def between(self, start: int, end: int) -> Events:
        """Events number `start` to `end`."""
        return self._take(slice(start, end))

    def chosen(self, places: Ints) -> Events:
        """The events at these places."""
        return self._take(places)

    def position(self, index: int) -> Position:
        """Where a pull stands when the event at `index` was the last one sent."""
        one, at = self.sets[int(self.source[index])], int(self.at[index])
        key = one.raw[at].as_py() if isinstance(one, Rows) else b""
        commit_ts, place, start_ts, table_id, op = (int(column[index]) for column in self._order)
        return Position(commit_ts, Place(place), start_ts, table_id, op, key)

    def _keys_ascend(self) -> bool:
        """Whether rows that are equal in every number already stand in key order: segments are sorted by key, and the
        sort above is stable, so that they nearly always do."""
        same = np.ones(max(len(self) - 1, 0), dtype=bool)
        for column in self._order:
            same &= column[1:] == column[:-1]
        at = np.flatnonzero(same)
        if not len(at):
            return True
        keys = self._raw_keys()
        here, there = (keys.take(pa.array(self._key_at()[at + step])) for step in (0, 1))
        return not pc.any(pc.greater(here, there)).as_py()

    def _raw_keys(self) -> pa.Array:
        """The raw keys of all sets, one set after the other."""
        keys = [one.raw.cast(_KEY) if isinstance(one, Rows) else pa.array([b""] * len(one), _KEY) for one in self.sets]
        return keys[0] if len(keys) == 1 else pa.concat_arrays(keys)

    def _key_at(self) -> Ints:
        begins = np.cumsum([0, *(len(one) for one in self.sets)])
        return begins[self.source] + self.at

    def _with_keys(self) -> Ints:
        keys = self._raw_keys().take(pa.array(self._key_at()))
        columns = {str(number): column for number, column in enumerate(self._order)}
        frame = pl.DataFrame({**columns, "key": pl.from_arrow(keys)})
        return frame.select(pl.arg_sort_by(frame.columns).cast(pl.Int64)).to_series().to_numpy()


def _joined(parts: list[Ints]) -> Ints:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _numbers(one: Rows | Ddls, name: int) -> Ints:
    """Column `name` of an event's place in the order, for one set."""
    count = len(one)
    if isinstance(one, Ddls):
        return (one.commit_ts, np.full(count, int(Place.DDL)), np.zeros(count, np.int64), one.number,
                np.zeros(count, np.int64))[name]  # fmt: skip
    return (one.commit_ts, np.full(count, int(Place.ROW)), one.start_ts, np.full(count, one.version.table.id),
            one.op)[name]  # fmt: skip


def ascend(columns: list[Ints]) -> bool:
    """Whether rows stand in lexicographic order of these columns."""
    equal = np.ones(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in columns:
        below, above = column[:-1], column[1:]
        if (equal & (above < below)).any():
            return False
        equal &= above == below
        if not equal.any():
            return True
    return True


NOTHING = Events.ordered(())
