"""The events of a golden set as a changefeed gets them: RowBatches and DDLs, read from a committed pool in memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from support.golden_kafka import EventKey
from support.pull_world import World, golden_world
from tistream.decode.keys import table_ids
from tistream.read.cursor import Position, Scope
from tistream.read.events import Events, Rows
from tistream.read.scan import Scan
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Column, Table
from tistream_changefeed.rows.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class FeedWindow:
    """The events of one read: batches of row events, and DDL events in order."""

    batches: tuple[RowBatch, ...]
    ddl: tuple[DdlEvent, ...]


@functools.cache
def golden_window(name: str = "everything", *, numbered: bool = False) -> FeedWindow:
    """All events of a golden set. `numbered`: ENUM and SET are numbers, as open-protocol and canal-json want them."""
    world = _world(name)
    scan = Scan(
        world.source, Scope(world.tenant), Position(world.snapshot_ts), world.end_ts, world.budget, numbered=numbered
    )
    batches: list[RowBatch] = []
    ddl: list[DdlEvent] = []
    for found in scan.batches():
        assert found.barrier is None, found.barrier
        batches += row_batches(found.events)
        ddl += [
            event
            for source, one in enumerate(found.events.sets)
            if not isinstance(one, Rows)
            for at, event in enumerate(one.events)
            if ((found.events.source == source) & (found.events.at == at)).any()
        ]
    return FeedWindow(tuple(batches), tuple(sorted(ddl, key=lambda event: event.commit_ts)))


@functools.cache
def _world(name: str) -> World:
    return golden_world(name)


def row_batches(events: Events) -> list[RowBatch]:
    """The row events of a window, table version by table version. No event is split."""
    out: list[RowBatch] = []
    for number, rows in enumerate(events.sets):
        if not isinstance(rows, Rows):
            continue
        places = np.flatnonzero(events.source == number)
        at = events.at[places]
        table = rows.version.table
        raw = rows.raw.take(at)
        out.append(
            RowBatch(
                version=rows.version,
                physical_id=int(table_ids(raw)[0]),
                columns=table.visible_columns,
                handle=handle_key(table),
                new=rows.new.columns if rows.new else (),
                old=rows.old.columns if rows.old else (),
                new_at=rows.new_at[at],
                old_at=rows.old_at[at],
                commit_ts=rows.commit_ts[at],
                start_ts=rows.start_ts[at],
                schema_version=rows.schema_version[at],
                raw=raw,
                at=places,
            )
        )
    return out


def handle_key(table: Table) -> tuple[Column, ...]:
    """The handle key columns as TiCDC chooses them: of the primary key, else of the unique index over NOT NULL columns
    with the fewest columns and then the lowest id."""
    if table.pk_is_handle:
        return table.handle_columns
    found = [index for index in table.indexes if index.public and index.primary]
    if not found:
        found = sorted(
            (
                index
                for index in table.indexes
                if index.public and index.unique and all(table.columns[one.offset].not_null for one in index.columns)
            ),
            key=lambda index: (len(index.columns), index.id),
        )
    return tuple(table.columns[one.offset] for one in found[0].columns) if found else ()


def event_keys(batch: RowBatch) -> list[EventKey]:
    """What names each event of a batch, for comparisons with TiCDC's stream."""
    ops = np.where(batch.new_at < 0, "delete", np.where(batch.old_at < 0, "insert", "update"))
    found = zip(batch.commit_ts.tolist(), batch.start_ts.tolist(), batch.raw.to_pylist(), ops.tolist(), strict=True)
    return [EventKey(commit_ts, start_ts, batch.physical_id, raw, op) for commit_ts, start_ts, raw, op in found]
