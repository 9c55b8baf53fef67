"""Splits updates that change a key into a delete and an insert, and sorts the events of a window into the order in
which a sink writes them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.decode.row_compare import same_rows
from tistream.read.events import ascend
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.handle_key import handle_columns, unique_columns
from tistream_changefeed.rows.row_batch import DELETE_HALF, PUT_HALF, WHOLE, RowBatch
from tistream_changefeed.rows.window import EventWindow, PlacedDdl, taken

DELETE, UPDATE, INSERT, SPLIT_INSERT = range(4)
"""Kinds of row events in the order in which a transaction's events of one table are sent."""

Splitting = Callable[[TableVersion], Sequence[Column]]
"""The columns of a table whose change splits an update."""


def never(_: TableVersion) -> Sequence[Column]:
    """A rule that splits no update (`output-raw-change-event`)."""
    return ()


def by_handle(version: TableVersion) -> Sequence[Column]:
    """A rule that splits updates which change the handle key. Returns the key's columns."""
    return handle_columns(version.table)


def by_unique_index(version: TableVersion) -> Sequence[Column]:
    """A rule that splits updates which change a column of any unique index, as TiCDC does. Returns these columns."""
    return unique_columns(version.table)


def kinds(batch: RowBatch) -> Int64s:
    """For each event of a batch, DELETE, UPDATE or INSERT."""
    return np.where(batch.new_at < 0, DELETE, np.where(batch.old_at < 0, INSERT, UPDATE))


@dataclass(frozen=True, slots=True)
class _Kinded:
    batch: RowBatch
    kind: Int64s


def split(window: EventWindow, splitting: Splitting) -> EventWindow:
    """Split the key updates of a window, and sort its events by (commit_ts, rows before DDL events, start_ts, table id,
    kind, raw key). The field `at` of the result numbers the events from 0, without gaps.

    An update is split if a column that `splitting` names for its table differs between the old row and the new one.
    Within a transaction and table, the delete half is sorted among the deletes, and the insert half after all other
    events.
    """
    parts = [_split(batch, splitting(batch.version)) for batch in window.rows]
    return _in_order([part for part in parts if len(part.kind)], window.ddls)


def _split(batch: RowBatch, columns: Sequence[Column]) -> _Kinded:
    kind = kinds(batch)
    moved = np.flatnonzero(changed(batch, columns))
    if batch.half is not None:
        return _halves(batch, kind, moved)
    return _split_at(batch, kind, moved) if len(moved) else _Kinded(batch, kind)


def _split_at(batch: RowBatch, kind: Int64s, moved: Int64s) -> _Kinded:
    """Split the updates with the indexes `moved`. In the result, their deletes, and then their inserts, follow the
    other events of the batch."""
    stays = np.ones(len(batch), dtype=bool)
    stays[moved] = False
    rest = np.flatnonzero(stays)
    out = taken(batch, np.concatenate([rest, moved, moved]))
    absent = np.full(len(moved), -1)
    new_at = np.concatenate([batch.new_at[rest], absent, batch.new_at[moved]])
    old_at = np.concatenate([batch.old_at[rest], batch.old_at[moved], absent])
    halves = np.repeat([DELETE, SPLIT_INSERT], len(moved))
    return _Kinded(replace(out, new_at=new_at, old_at=old_at), np.concatenate([kind[rest], halves]))


def _halves(batch: RowBatch, kind: Int64s, moved: Int64s) -> _Kinded:
    """Split updates as `_split_at` does, in a batch in which some updates are present only as their delete or their
    put. An update that is not split is sent at the position of its put."""
    whole = _split_at(replace(batch, half=None), kind, moved)
    half = np.full(len(whole.kind), WHOLE)
    assert batch.half is not None
    half[: len(batch) - len(moved)] = np.delete(batch.half, moved)
    half[len(batch) - len(moved) :] = np.tile(batch.half[moved], 2)
    sent = np.where(whole.kind == DELETE, half != PUT_HALF, half != DELETE_HALF)
    return _Kinded(taken(whole.batch, np.flatnonzero(sent)), whole.kind[sent])


def changed(batch: RowBatch, columns: Sequence[Column]) -> Bools:
    """For each event, whether it is an update that changes any of these columns. Two NULLs are equal; texts are
    compared by their bytes."""
    out = np.zeros(len(batch), dtype=bool)
    update = np.flatnonzero((batch.new_at >= 0) & (batch.old_at >= 0))
    places = [place for place, column in enumerate(batch.columns) if column in columns]
    if len(update) and places:
        new_at, old_at = batch.new_at[update], batch.old_at[update]
        new, old = [batch.new[place] for place in places], [batch.old[place] for place in places]
        if not np.array_equal(new_at, old_at):
            new, old = [one.take(pa.array(new_at)) for one in new], [one.take(pa.array(old_at)) for one in old]
            new_at = np.arange(len(update))
        out[update] = ~same_rows(new, old, new_at)
    return out


def _in_order(parts: Sequence[_Kinded], ddls: Sequence[PlacedDdl]) -> EventWindow:
    """Number all events of the window in the order in which they are sent."""
    if not parts:
        return EventWindow((), tuple(PlacedDdl(place, ddl.event) for place, ddl in enumerate(ddls)))
    commit_ts = np.concatenate([part.batch.commit_ts for part in parts])
    order = _order(parts, commit_ts)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    ddl_ts = np.array([ddl.event.commit_ts for ddl in ddls], np.int64)
    place = rank + np.searchsorted(ddl_ts, commit_ts, side="left")  # ddl events below a row's commit_ts precede it
    rows_before = np.searchsorted(commit_ts[order], ddl_ts, side="right")
    out: list[RowBatch] = []
    begin = 0
    for part in parts:
        end = begin + len(part.kind)
        out.append(_sorted(part.batch, place[begin:end]))
        begin = end
    placed = (PlacedDdl(int(rows_before[at]) + at, ddl.event) for at, ddl in enumerate(ddls))
    return EventWindow(tuple(out), tuple(placed))


def _sorted(batch: RowBatch, place: Int64s) -> RowBatch:
    """The batch with these numbers as the positions of its events, sorted by them."""
    batch = replace(batch, at=place)
    return batch if ascend([place]) else taken(batch, np.argsort(place))


def _order(parts: Sequence[_Kinded], commit_ts: Int64s) -> Int64s:
    """The indexes of all events of the batches, sorted in the order in which they are sent."""
    start_ts = np.concatenate([part.batch.start_ts for part in parts])
    table = np.concatenate([np.full(len(part.kind), part.batch.version.head.id) for part in parts])
    kind = np.concatenate([part.kind for part in parts])
    before = np.concatenate([part.batch.at for part in parts])
    if not (kind == SPLIT_INSERT).any():  # the events of one kind are in key order already
        return np.lexsort((before, kind, table, start_ts, commit_ts))
    raw = pa.concat_arrays([part.batch.raw.cast(pa.large_binary()) for part in parts])
    frame = pl.DataFrame(
        {"commit_ts": commit_ts, "start_ts": start_ts, "table": table, "kind": kind, "raw": pl.from_arrow(raw)}
    )
    return frame.select(pl.arg_sort_by(frame.columns).cast(pl.Int64)).to_series().to_numpy()
