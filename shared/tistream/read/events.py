"""The events of a pull, stored as columns, and their order. Pure.

Rows stay in the typed columns to which they were decoded. They are encoded as JSON or Arrow only when they are sent, so
events that a limit excludes are never encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Bools, Int64s
from tistream.read.cursor import Place, Position
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion

_KEY = pa.binary()
_OBJECT_BYTES = 2_048  # memory of an array or a ddl event besides its cells, estimated high


@dataclass(frozen=True, slots=True)
class Image:
    """The decoded rows of some changes, either all new rows or all old rows. A change without such a row is null in
    every column."""

    columns: Sequence[pa.Array]  # those of Rows.columns; one whose values were not decoded has the type null
    keys: Sequence[pa.Array]  # the key's columns; for a table without a key, the integer handle `_tidb_rowid`


@dataclass(frozen=True, slots=True)
class Rows:
    """Row events of one physical table and one version of it, in any order. All index and ts arrays have one element
    for each event.

    Event i shows the row at index `new_at[i]` of `new`, and as its previous state the row at index `old_at[i]` of
    `old`; -1 means that it has none. A delete has no new row. `new` or `old` is None if no event shows it.
    """

    version: TableVersion
    new: Image | None
    old: Image | None
    commit_ts: Int64s
    start_ts: Int64s
    schema_version: Int64s
    op: Int64s  # 0 delete, 1 put
    new_at: Int64s
    old_at: Int64s
    raw: pa.Array  # raw keys
    half: (
        # Whether the event is the delete or the put of an update that is shown as both. Both images have one index.
        Bools
    )
    shown: tuple[Column, ...] | None = None  # the columns of the images, if they are not all visible ones

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the images."""
        return self.version.table.visible_columns if self.shown is None else self.shown

    def __len__(self) -> int:
        return len(self.op)

    @property
    def undecoded(self) -> int:
        """The number of values that were not decoded, because the reader does not need their columns."""
        columns = [one for image in (self.new, self.old) if image for one in image.columns]
        return sum(len(one) for one in columns if pa.types.is_null(one.type))

    @property
    def arrays(self) -> list[pa.Array]:
        """All arrays, so that a caller can add up the memory of their buffers. Several arrays may share one buffer."""
        return [self.raw, *(one for image in (self.new, self.old) if image for one in (*image.columns, *image.keys))]


@dataclass(frozen=True, slots=True)
class RawRows:
    """Changes of RawKV, in any order. All arrays have one element for each event.

    raw: raw keys, with the prefix of the keyspace. value: null for a delete. expire_ts: seconds since the Unix epoch; 0
    means that the row never expires.
    """

    commit_ts: Int64s
    start_ts: Int64s
    keyspace: Int64s
    op: Int64s  # 0 delete, 1 put
    raw: pa.Array
    value: pa.Array
    expire_ts: Int64s

    def __len__(self) -> int:
        return len(self.op)

    @property
    def arrays(self) -> list[pa.Array]:
        """All arrays, so that a caller can add up the memory of their buffers. Several arrays may share one buffer."""
        return [self.raw, self.value]


@dataclass(frozen=True, slots=True)
class Ddls:
    """DDL events, in order. `number` counts the events of each commit_ts from 1."""

    events: tuple[DdlEvent, ...]

    def __len__(self) -> int:
        return len(self.events)

    @property
    def commit_ts(self) -> Int64s:
        return np.array([event.commit_ts for event in self.events], np.int64)

    @property
    def number(self) -> Int64s:
        same = groupby(self.events, key=lambda event: event.commit_ts)
        return np.array([at for _, found in same for at, _ in enumerate(found, 1)], np.int64)


@dataclass(frozen=True, slots=True)
class Events:
    """Events of several sets, in the order in which they are sent: event i is event `at[i]` of `sets[source[i]]`."""

    sets: tuple[Rows | RawRows | Ddls, ...]
    commit_ts: Int64s
    place: Int64s  # Place.ROW or Place.DDL
    start_ts: Int64s
    table_id: Int64s  # logical id; for a ddl event, its number; for RawKV, the keyspace + 1
    op: Int64s
    source: Int64s
    at: Int64s

    def __len__(self) -> int:
        return len(self.commit_ts)

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the events, in bytes. Counts whole buffers, even if only some of their bytes are
        used."""
        rows = [one for one in self.sets if not isinstance(one, Ddls)]
        arrays = [array for one in rows for array in one.arrays]
        buffers = {buffer.address: buffer.size for array in arrays for buffer in array.buffers() if buffer is not None}
        numbers = (len(fields(self)) - 1) * len(self) + (len(fields(Rows)) - 4) * sum(map(len, rows))
        objects = len(arrays) + sum(len(one) for one in self.sets if isinstance(one, Ddls)) + 1
        cells: int = sum(buffers.values())
        return cells + 8 * numbers + _OBJECT_BYTES * objects

    @property
    def rows(self) -> int:
        """The number of row events."""
        return int(np.count_nonzero(self.place == int(Place.ROW)))

    @classmethod
    def ordered(cls, sets: Sequence[Rows | RawRows | Ddls]) -> Events:
        """Sort events into the order of design.md 5 ("Order")."""
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
    def _order(self) -> list[Int64s]:
        return [self.commit_ts, self.place, self.start_ts, self.table_id, self.op]

    def _take(self, places: Int64s | slice) -> Events:
        columns = [getattr(self, field.name)[places] for field in fields(self)[1:]]
        return Events(self.sets, *columns)

    def first(self, count: int) -> Events:
        """The first `count` events."""
        return self._take(slice(0, count))

    def before(self, commit_ts: int) -> Events:
        """The events with a commit_ts below `commit_ts`."""
        return self.first(int(np.searchsorted(self.commit_ts, commit_ts, side="left")))

    def after(self, at: Position) -> Events:
        """The events that come after a position."""
        if at.place is Place.DONE:
            start = int(np.searchsorted(self.commit_ts, at.commit_ts, side="right"))
        else:
            low, high = (int(np.searchsorted(self.commit_ts, at.commit_ts, side=side)) for side in ("left", "right"))
            while low < high:  # bisect, because within a commit_ts events are ordered by position
                middle = (low + high) // 2
                low, high = (low, middle) if self.position(middle) > at else (middle + 1, high)
            start = low
        return self._take(slice(start, None))

    def between(self, start: int, end: int) -> Events:
        """The events with the indexes `start` (inclusive) to `end` (exclusive)."""
        return self._take(slice(start, end))

    def chosen(self, places: Int64s) -> Events:
        """The events with these indexes."""
        return self._take(places)

    def position(self, index: int) -> Position:
        """The position of a pull after the event at `index` has been sent."""
        one, at = self.sets[int(self.source[index])], int(self.at[index])
        key = b"" if isinstance(one, Ddls) else one.raw[at].as_py()
        commit_ts, place, start_ts, table_id, op = (int(column[index]) for column in self._order)
        return Position(commit_ts, Place(place), start_ts, table_id, op, key)

    def _keys_ascend(self) -> bool:
        """Whether rows that are equal in all numeric columns are already in key order. They nearly always are, because
        segments are sorted by key and the previous sort is stable."""
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
        """The raw keys of the events of all sets, one set after the other."""
        keys = [pa.array([b""] * len(one), _KEY) if isinstance(one, Ddls) else one.raw.cast(_KEY) for one in self.sets]
        return keys[0] if len(keys) == 1 else pa.concat_arrays(keys)

    def _key_at(self) -> Int64s:
        begins = np.cumsum([0, *(len(one) for one in self.sets)])
        return begins[self.source] + self.at

    def _with_keys(self) -> Int64s:
        keys = self._raw_keys().take(pa.array(self._key_at()))
        columns = {str(number): column for number, column in enumerate(self._order)}
        frame = pl.DataFrame({**columns, "key": pl.from_arrow(keys)})
        return frame.select(pl.arg_sort_by(frame.columns).cast(pl.Int64)).to_series().to_numpy()


def _joined(parts: list[Int64s]) -> Int64s:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _numbers(one: Rows | RawRows | Ddls, name: int) -> Int64s:
    """Column number `name` of the sort order, for the events of one set."""
    count = len(one)
    if isinstance(one, Ddls):
        return (one.commit_ts, np.full(count, int(Place.DDL)), np.zeros(count, np.int64), one.number,
                np.zeros(count, np.int64))[name]  # fmt: skip
    table_id = one.keyspace + 1 if isinstance(one, RawRows) else np.full(count, one.version.table.id)
    return (one.commit_ts, np.full(count, int(Place.ROW)), one.start_ts, table_id, one.op)[name]  # fmt: skip


def ascend(columns: list[Int64s]) -> bool:
    """Whether rows are in the lexicographic order of these columns."""
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
