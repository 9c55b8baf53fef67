"""Answers UndoTransactions: checks and admits each request, reads the changes and the present rows, and plans the
undo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tistream import trace
from tistream.errors import InvalidRequest, UnknownName
from tistream.follow.tenant_view import TenantView
from tistream.read.cursor import Place as Order
from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Scan
from tistream_api.points.list_rows import undecodable
from tistream_api.points.point_reads import PointReads
from tistream_api.pull.admitted import Admitted, ReadCaller
from tistream_api.request.undo_body import UndoRequest
from tistream_api.undo.changed_rows import ChangedRows
from tistream_api.undo.undo_state import undo_at


@dataclass(frozen=True, slots=True)
class UndoReads:
    """Answers UndoTransactions for every tenant. Thread-safe. The call only reads, and shares the limits of reads at a
    point in time."""

    points: PointReads

    def undo(self, view: TenantView, ask: UndoRequest, read_caller: ReadCaller) -> dict[str, Any]:
        """The answer of UndoTransactions.

        Raises:
            UnknownName: a transaction or a name does not exist.
            Gone: a ts of the request lies below retention.
            InvalidRequest, Undecodable, Unavailable, TooManyRequests.
        """
        admitted = self.points.admission.begin(view, "UndoTransactions", read_caller, trace.here())
        try:
            read_caller.has_slot()
            view.wait_fresh(read_caller.alive)
            view.check_known()
            admitted.room.take()
            steps = (one.answer() for one in [_Undo(self.points, view, ask, admitted)])  # made inside a working step
            return next(self.points.working.each(admitted.tenant, steps, read_caller.alive))
        finally:
            admitted.release()


@dataclass(slots=True)
class _Undo:
    """One request of UndoTransactions, and the objects that it reads."""

    points: PointReads
    view: TenantView
    ask: UndoRequest
    admitted: Admitted

    def answer(self) -> dict[str, Any]:
        scopes = list(self._scopes())
        changed = ChangedRows(self.ask.where)
        for events in self._in_window(scopes) if self.ask.window is not None else self._of_transactions(scopes):
            self.admitted.count(len(events), len(events), 0)
            changed.add(events)
        changed.choose()
        ts = self.view.resolved_ts()
        found = undo_at(self.view.source, self.points.pool_reads(self.view, ts), changed, ts)
        return found.answer(self.ask.dialect, self.ask.into_database)

    def _scopes(self) -> Iterator[Scope]:
        """Resolve the names in the request to scopes. Raises UnknownName for a name that no object ever had."""
        low, high = self.view.earliest_ts(), self.view.resolved_ts()
        for name in self.ask.names:
            scope = Scope(self.view.tenant, name.database, name.table)
            if not self.view.source.name_exists(scope, low, high):
                raise UnknownName(
                    f"tables: there is no {name} between {low} and {high}; ListDBs and ListTables have the names"
                )
            yield scope

    def _in_window(self, scopes: Sequence[Scope]) -> Iterator[Events]:
        assert self.ask.window is not None
        low, high = (self.points.times.readable(self.view, f"window.{name}", ts)
                     for name, ts in zip(("from", "to"), self.ask.window, strict=True))  # fmt: skip
        if high < low:
            raise InvalidRequest(
                f"window.to {high} lies below window.from {low}: the range is empty", {"parameter": "window"}
            )
        for scope in scopes:
            alive = self.admitted.read_caller.alive
            scan = Scan(self.view.source, scope, Position(low), high, self.points.budget, alive=alive)
            for batch in scan.batches():
                if batch.barrier is not None:
                    self.view.record_barrier(batch.barrier)
                    raise undecodable(batch.barrier)
                events = batch.events.chosen(np.flatnonzero(batch.events.place == int(Order.ROW)))
                if len(events):
                    yield events

    def _of_transactions(self, scopes: Sequence[Scope]) -> Iterator[Events]:
        for start_ts in self.ask.start_ts:
            parts = [self.points.transaction_of(self.view, scope, start_ts, self.admitted) for scope in scopes]
            commit_ts = parts[0].commit_ts()
            for part in parts:
                yield from part.events(commit_ts)
