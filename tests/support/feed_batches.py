"""The events of a golden set as a changefeed gets them: RowBatches and DDLs, read from a committed pool in memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import polars as pl

from support.golden_kafka import EventKey
from support.pull_world import World, committed, golden_world
from tistream.format.segment import SCHEMA
from tistream.model.ts import Window as TsWindow
from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.row_events import Moving, render
from tistream.read.scan import Scan
from tistream.schema.ddl_event import DdlEvent
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import by_unique_index, kinds, split
from tistream_changefeed.rows.window import EventWindow, raw_changes

OPS = ("delete", "update", "insert")


@dataclass(frozen=True, slots=True)
class FeedWindow:
    """The events of one read: batches of row events, and DDL events in order."""

    batches: tuple[RowBatch, ...]
    ddl: tuple[DdlEvent, ...]


@functools.cache
def raw_events(name: str) -> tuple[Events, ...]:
    """The events of a golden set in parts, as a holder reads them: ENUM and SET are numbers."""
    world = _world(name)
    at = Position(world.snapshot_ts)
    scan = Scan(
        world.source, Scope(world.tenant), at, world.end_ts, world.budget, numbered=True, moving=by_unique_index
    )
    return tuple(found.events for found in scan.batches())


@functools.cache
def raw_windows(name: str = "everything", *, numbered: bool = False) -> tuple[EventWindow, ...]:
    """All changes of a golden set as they were committed, window by window. `numbered`: ENUM and SET are numbers."""
    world = _world(name)
    scan = Scan(
        world.source, Scope(world.tenant), Position(world.snapshot_ts), world.end_ts, world.budget, numbered=numbered
    )
    out: list[EventWindow] = []
    for found in scan.batches():
        assert found.barrier is None, found.barrier
        out.append(raw_changes(found.events))
    return tuple(out)


def rendered_window(op: int | None, moving: Moving | None) -> EventWindow:
    """The changes of `everything` whose events are deletes or puts (plan.OP_DELETE, OP_PUT; None: both), as a
    transaction is read that is too large to be held."""
    world = _world("everything")
    rows = committed("everything")[0].filter(pl.col("table_id") > 0).select(SCHEMA.names)
    ids = rows["table_id"].unique().to_list()
    shapes = world.source.shapes(Scope(world.tenant), ids, TsWindow(world.snapshot_ts, world.end_ts))
    return raw_changes(Events.ordered(render(rows.to_arrow().cast(SCHEMA), shapes, op, moving=moving).sets))


@functools.cache
def golden_windows(name: str = "everything", *, numbered: bool = False) -> tuple[EventWindow, ...]:
    """All events of a golden set, split and in order as a Kafka sink gets them, window by window."""
    return tuple(split(window, by_unique_index) for window in raw_windows(name, numbered=numbered))


@functools.cache
def golden_window(name: str = "everything", *, numbered: bool = False) -> FeedWindow:
    """All events of a golden set, split. `numbered`: ENUM and SET are numbers, as open-protocol and canal-json want
    them."""
    windows = golden_windows(name, numbered=numbered)
    batches = tuple(batch for window in windows for batch in window.rows)
    return FeedWindow(batches, tuple(ddl.event for window in windows for ddl in window.ddls))


@functools.cache
def _world(name: str) -> World:
    return golden_world(name)


def event_keys(batch: RowBatch) -> list[EventKey]:
    """What names each event of a batch, for comparisons with TiCDC's stream."""
    ops = [OPS[kind] for kind in kinds(batch).tolist()]
    found = zip(batch.commit_ts.tolist(), batch.start_ts.tolist(), batch.raw.to_pylist(), ops, strict=True)
    return [EventKey(commit_ts, start_ts, batch.physical_id, raw, op) for commit_ts, start_ts, raw, op in found]
