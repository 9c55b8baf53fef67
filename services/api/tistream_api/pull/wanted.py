"""Selects the events of a window that a pull requests: rows, DDL events or both, by its filter. Pure except for the
reads of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tistream.filters.event_choice import EventChoice
from tistream.model.ts import Window
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import Events
from tistream.read.filtered.chosen_events import chosen
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import Alive, Batch, ScanSource, always
from tistream_api.pull.filtered import NeededBy, Outside, scope_of
from tistream_api.request.params import ALL, DDL


def wanted(
    kind: str,
    source: ScanSource,
    scope: Scope,
    start: Position,
    high: int,
    budget: Budget,
    alive: Alive = always,
    choice: EventChoice | None = None,
) -> Iterator[Batch]:
    """Yield the events of the scope after the position `start` with commit_ts <= `high`, in batches. `kind` is the
    pull's parameter `events`: `rows`, `ddl` or `all`. `budget` limits the size of a batch. `alive` is called while rows
    are read; it raises if the client has disconnected. `choice` is the pull's filter; None: every event."""
    found = _events(kind, source, scope, start, high, budget, alive, choice)
    return found if choice is None else chosen(choice, found)


def _events(
    kind: str,
    source: ScanSource,
    scope: Scope,
    start: Position,
    high: int,
    budget: Budget,
    alive: Alive,
    choice: EventChoice | None,
) -> Iterator[Batch]:
    if kind == DDL:  # from the schema history: no segment is read
        if start.low_ts < high:
            events = Events.ordered([source.ddl_events(scope, Window(start.low_ts, high))])
            yield Batch(events.after(start), high)
        return
    scanned = scope_of(scope, choice)
    needed = None if choice is None or choice.columns is None else NeededBy(choice)
    excluded = None if choice is None else Outside(choice, scanned, source)
    scan = Scan(source, scanned, start, high, budget, needed=needed, excluded=excluded, alive=alive)
    batches = scan.batches()
    yield from batches if kind == ALL else map(_rows, batches)


def _rows(batch: Batch) -> Batch:
    """The batch without its DDL events. Its `through` is unchanged, so the pull's position moves past the DDL
    events."""
    rows = batch.events.place == int(Place.ROW)
    return batch if rows.all() else replace(batch, events=batch.events.chosen(np.flatnonzero(rows)))
