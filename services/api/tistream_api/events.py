"""Events of a pull as columns: their place in the order, and their text. Pure.

`line` is an event's NDJSON line with its newline, so that the buffer behind the array *is* the answer's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream_api.cursor import Place, Position

Ints = npt.NDArray[np.int64]

SCHEMA = pa.schema(
    [
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),  # Place.ROW or Place.DDL
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("table_id", pa.int64(), nullable=False),  # logical; of a ddl event its number within commit_ts, from 1
        pa.field("op", pa.int64(), nullable=False),  # 0 delete, 1 put
        pa.field("key", pa.large_binary(), nullable=False),  # raw
        pa.field("line", pa.large_binary(), nullable=False),
    ]
)
EMPTY = SCHEMA.empty_table()
_NUMBERS = ("commit_ts", "place", "start_ts", "table_id", "op")


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order in which they are sent."""

    table: pa.Table  # SCHEMA, one chunk a column
    commit_ts: Ints

    def __len__(self) -> int:
        return len(self.commit_ts)

    @classmethod
    def ordered(cls, table: pa.Table) -> Events:
        """Put a table of SCHEMA into order: design.md 5, "Order"."""
        table = table.combine_chunks()
        numbers = [_numpy(table, name) for name in _NUMBERS]
        if len(table) > 1:
            order = np.lexsort(numbers[::-1])
            if not (np.diff(order) == 1).all():
                table = table.take(pa.array(order)).combine_chunks()
                numbers = [column[order] for column in numbers]
            if not _keys_ascend(table, numbers):
                table = _sorted_with_keys(table)
                numbers[0] = _numpy(table, "commit_ts")
        return cls(table, numbers[0])

    def first(self, count: int) -> Events:
        """The first `count` events."""
        return Events(self.table.slice(0, count), self.commit_ts[:count])

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
        return Events(self.table.slice(start), self.commit_ts[start:])

    def position(self, index: int) -> Position:
        """Where a pull stands when the event at `index` was the last one sent."""
        row: dict[str, Any] = self.table.select([*_NUMBERS, "key"]).slice(index, 1).to_pylist()[0]
        return Position(row["commit_ts"], Place(row["place"]), row["start_ts"], row["table_id"], row["op"], row["key"])

    def text(self) -> memoryview:
        """The lines of all events, back to back; no copy."""
        if not len(self):
            return memoryview(b"")
        lines = self.table.column("line").chunk(0)
        offsets = np.frombuffer(lines.buffers()[1], dtype=np.int64)
        start, end = offsets[lines.offset], offsets[lines.offset + len(lines)]
        return memoryview(lines.buffers()[2])[start:end]


def _numpy(table: pa.Table, name: str) -> Ints:
    column = table.column(name)
    return column.chunk(0).to_numpy() if column.num_chunks else np.empty(0, dtype=np.int64)


def _keys_ascend(table: pa.Table, numbers: list[Ints]) -> bool:
    """Whether rows that are equal in every number already stand in key order: segments are sorted by key, and the
    sort above is stable, so that they nearly always do."""
    same = np.ones(len(table) - 1, dtype=bool)
    for column in numbers:
        same &= column[1:] == column[:-1]
    at = np.flatnonzero(same)
    if not len(at):
        return True
    keys = table.column("key").chunk(0)
    return not pc.any(pc.greater(keys.take(pa.array(at)), keys.take(pa.array(at + 1)))).as_py()


def _sorted_with_keys(table: pa.Table) -> pa.Table:
    order = pl.from_arrow(table.select([*_NUMBERS, "key"])).select(  # type: ignore[union-attr]
        pl.arg_sort_by([*_NUMBERS, "key"]).cast(pl.Int64)
    )
    return table.take(order.to_series().to_arrow()).combine_chunks()
