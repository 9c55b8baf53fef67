"""Applies a filter to the events that a scan yields: which of them it selects, and which columns it shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tistream.arrays import Bools, Int64s
from tistream.errors import InvalidRequest
from tistream.filters.event_choice import EventChoice
from tistream.read.events import Ddls, Events, Image, Rows
from tistream.read.plan import OP_DELETE
from tistream.read.source_contract import Batch
from tistream.schema.tidb.table import Column


def chosen(choice: EventChoice, found: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches with the events that the filter selects, and the columns that it shows. If `where` cannot be
    evaluated for a row, because its table lacks a column, the last batch ends below that row."""
    for batch in found:
        selected = _Selected(choice, batch.events)
        misfit = selected.misfit
        if misfit is None:
            looked_at = batch.events.position(len(batch.events) - 1) if len(batch.events) else None
            yield replace(batch, events=selected.events(len(batch.events)), looked_at=looked_at)
            continue
        commit_ts = int(batch.events.commit_ts[misfit])
        through = None if batch.through is None else commit_ts - 1
        before = misfit if through is None else int(np.searchsorted(batch.events.commit_ts, commit_ts))
        looked_at = batch.events.position(before - 1) if before else None
        events = selected.events(before)
        yield replace(batch, events=events, through=through, barrier=None, last=True, looked_at=looked_at)
        return


class _Selected:
    """The events of one batch that a filter selects."""

    def __init__(self, choice: EventChoice, events: Events) -> None:
        self._choice, self._events = choice, events
        self.misfit: int | None = None  # index of the first event of which `where` cannot be evaluated
        self._sets = list(events.sets)
        self._kept = np.zeros(len(events), dtype=bool)
        for number in np.unique(events.source).tolist():
            mine = np.flatnonzero(events.source == number)
            one = events.sets[number]
            if isinstance(one, Rows):
                self._rows(number, one, mine)
            elif isinstance(one, Ddls):
                self._kept[mine] = [choice.sends(one.events[at]) for at in events.at[mine].tolist()]

    def events(self, count: int) -> Events:
        """The selected events among the first `count`."""
        kept = np.flatnonzero(self._kept[:count])
        return replace(self._events.chosen(kept), sets=tuple(self._sets))

    def _rows(self, number: int, rows: Rows, mine: Int64s) -> None:
        table, choice = rows.version.table, self._choice
        try:
            choice.check(table)
        except InvalidRequest:
            first = int(mine[0])
            self.misfit = first if self.misfit is None else min(self.misfit, first)
            return
        at = self._events.at[mine]
        new_at, old_at = rows.new_at[at], rows.old_at[at]
        kept = _operations(choice, rows.op[at], old_at)
        if choice.where is not None:
            places = np.flatnonzero(kept)
            true = np.zeros(len(places), dtype=bool)
            for image, of in ((rows.new, new_at[places]), (rows.old, old_at[places])):
                if image is not None:
                    true |= choice.true_of(table, rows.columns, image.columns, of)
            kept[places] = true
        self._kept[mine] = kept
        if choice.columns is not None:
            self._sets[number] = _projected(rows, choice.shown(table))


def _operations(choice: EventChoice, op: Int64s, old_at: Int64s) -> Bools:
    if choice.operations is None:
        return np.ones(len(op), dtype=bool)
    deletes = op == OP_DELETE
    out = deletes & ("delete" in choice.operations)
    out |= ~deletes & (old_at >= 0) & ("update" in choice.operations)
    kept: Bools = out | (~deletes & (old_at < 0) & ("insert" in choice.operations))
    return kept


def _projected(rows: Rows, shown: tuple[Column, ...]) -> Rows:
    places = [rows.columns.index(column) for column in shown]

    def side(image: Image | None) -> Image | None:
        return None if image is None else Image([image.columns[at] for at in places], image.keys)

    return replace(rows, new=side(rows.new), old=side(rows.old), shown=shown)
