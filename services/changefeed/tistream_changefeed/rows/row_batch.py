"""A batch of row events of one table version, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tistream.arrays import Int64s
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion

WHOLE, DELETE_HALF, PUT_HALF = -1, 0, 1


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Row events of one physical table in one of its versions. Index and ts arrays have one element for each event. An
    event's new row is row `new_at` of the arrays in `new`, its old row is row `old_at` of the arrays in `old`. -1 means
    absent: an insert has no old row, a delete no new one, an update has both. `at` is the position of each event among
    all events of its window; a sink writes the events of a window in that order."""

    version: TableVersion
    physical_id: int
    columns: tuple[Column, ...]  # that are sent, in the table's order: visible, and not virtual generated
    handle: tuple[Column, ...]  # handle key columns as TiCDC chooses them; empty: none
    new: Sequence[pa.Array]  # decoded values, one array for each of `columns`
    old: Sequence[pa.Array]
    new_at: Int64s
    old_at: Int64s
    commit_ts: Int64s
    start_ts: Int64s
    schema_version: Int64s  # finished_ts of the table's newest DDL
    raw: pa.Array  # raw record keys, one for each event
    at: Int64s
    half: Int64s | None = None  # of raw changes: WHOLE, or the half of an update that this event stands for

    def __len__(self) -> int:
        return len(self.at)
