"""Row events of several tables and DDL events in one common order. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.decode.cells.kinds import arrow_type, kind_of
from tistream.decode.keys import table_ids
from tistream.read.events import Ddls, Events, Image, Rows
from tistream.schema.ddl_event import DdlEvent
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.row_batch import DELETE_HALF, PUT_HALF, WHOLE, RowBatch

_PUT = 1


@dataclass(frozen=True, slots=True)
class PlacedDdl:
    """A DDL event and its position among all events of the window. All rows with a commit_ts <= its own come before
    it."""

    at: int
    event: DdlEvent


@dataclass(frozen=True, slots=True)
class EventWindow:
    """All events of a range of commit_ts. The positions `at` of rows and DDL events ascend in the order in which a sink
    writes them, and are distinct; there may be gaps."""

    rows: tuple[RowBatch, ...]
    ddls: tuple[PlacedDdl, ...]

    def __len__(self) -> int:
        return sum(map(len, self.rows)) + len(self.ddls)


def raw_changes(events: Events) -> EventWindow:
    """The changes of rows as they were committed, one event for each. `events` may show an update as a delete and a put
    of one row; both together become one update here. If only one of them is among `events`, because the transaction is
    read in parts, it becomes an update that is marked as that half, so that filters decide alike for both halves. The
    positions are those of `events`; split.py replaces them by those of a sink."""
    rows: list[RowBatch] = []
    ddls: list[PlacedDdl] = []
    for number, one in enumerate(events.sets):
        place = np.flatnonzero(events.source == number)
        if not len(place):
            continue
        if isinstance(one, Ddls):
            ddls += [PlacedDdl(int(at), one.events[int(events.at[at])]) for at in place]
        elif isinstance(one, Rows):
            rows.append(_batch(one, events.at[place], place))
    return EventWindow(tuple(rows), tuple(sorted(ddls, key=lambda ddl: ddl.at)))


def _batch(rows: Rows, at: Int64s, place: Int64s) -> RowBatch:
    """Build a batch of the changes with the indexes `at` in `rows`. `place`: their positions."""
    table = rows.version.table
    put, half = rows.op[at] == _PUT, rows.half[at]
    row = np.where(put, rows.new_at[at], rows.old_at[at])
    whole = half & np.isin(row, np.intersect1d(row[half & put], row[half & ~put]))
    kept = put | ~whole
    at, place, put, half, row = at[kept], place[kept], put[kept], half[kept], row[kept]
    alone = np.where(half & ~whole[kept], np.where(put, PUT_HALF, DELETE_HALF), WHOLE)
    raw = rows.raw.take(pa.array(at))
    return RowBatch(
        version=rows.version,
        physical_id=int(table_ids(raw[:1])[0]),
        columns=table.visible_columns,
        handle=handle_columns(table),
        new=_columns(rows, rows.new),
        old=_columns(rows, rows.old),
        new_at=np.where(half, row, rows.new_at[at]),
        old_at=np.where(half, row, rows.old_at[at]),
        commit_ts=rows.commit_ts[at],
        start_ts=rows.start_ts[at],
        schema_version=rows.schema_version[at],
        raw=raw,
        at=place,
        half=alone if (alone != WHOLE).any() else None,
    )


def _columns(rows: Rows, image: Image | None) -> list[pa.Array]:
    """The arrays of a row image (old or new); empty arrays of the same types if no event has the image."""
    if image is not None:
        return list(image.columns)
    other = rows.new or rows.old
    if other is not None:
        return [array.slice(0, 0) for array in other.columns]
    return [pa.array([], arrow_type(kind_of(column))) for column in rows.version.table.visible_columns]


def taken(batch: RowBatch, chosen: Int64s) -> RowBatch:
    """The events of a batch with these indexes."""
    return replace(
        batch,
        new_at=batch.new_at[chosen],
        old_at=batch.old_at[chosen],
        commit_ts=batch.commit_ts[chosen],
        start_ts=batch.start_ts[chosen],
        schema_version=batch.schema_version[chosen],
        raw=batch.raw.take(pa.array(chosen)),
        at=batch.at[chosen],
        half=None if batch.half is None else batch.half[chosen],
    )
