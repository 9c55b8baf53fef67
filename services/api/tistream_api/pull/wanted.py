"""Selects the events of a window that a pull requests: rows, DDL events or both. Pure except for the reads of the
source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tistream.model.ts import Window
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import Alive, Batch, ScanSource, always
from tistream_api.request.params import ALL, DDL


def wanted(
    kind: str,
    source: ScanSource,
    scope: Scope,
    start: Position,
    high: int,
    budget: Budget,
    alive: Alive = always,
) -> Iterator[Batch]:
    """The scope's events after `start` with commit_ts <= `high`; `kind` is the parameter `events`. `alive` checks the
    client while rows are read."""
    if kind == DDL:  # from the schema history: no segment is read
        if start.low_ts < high:
            events = Events.ordered([source.ddl_events(scope, Window(start.low_ts, high))])
            yield Batch(events.after(start), high)
        return
    batches = Scan(source, scope, start, high, budget, alive=alive).batches()
    yield from batches if kind == ALL else map(_rows, batches)


def _rows(batch: Batch) -> Batch:
    """The batch without its DDL events. Its `through` is unchanged, so the pull's position moves past the DDL
    events."""
    rows = batch.events.place == int(Place.ROW)
    return batch if rows.all() else replace(batch, events=batch.events.chosen(np.flatnonzero(rows)))
