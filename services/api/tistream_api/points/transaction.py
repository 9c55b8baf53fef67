"""Answers GetTransaction: every row event of one transaction, which is found by its start_ts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow.compute as pc

from tistream.errors import Gone, NotFoundYet, Unavailable, UnknownName
from tistream.model.ts import MAX_TS, Window, from_physical_ms, physical_ms
from tistream.pool.versions.pool_reads import REPLANS
from tistream.pool.versions.reader import Reader
from tistream.read import plan
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import Events
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget, Scan
from tistream.read.source import TenantSource
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.encode.piece import Piece
from tistream_api.points.list_rows import undecodable

# TiDB ends transactions after max-txn-ttl (an hour); an operator may have raised it.
LONGEST_MS = 24 * 3_600_000
_READ = ("start_ts", "commit_ts", "txn_source")


@dataclass(slots=True)
class Transaction:
    """One request of GetTransaction, and the objects that it reads. `low_ts` is the earliest ts that is kept, and
    `high_ts` the resolved_ts. `count` and `record_barrier` are as in list_rows.RowsPage."""

    scope: Scope
    start_ts: int
    low_ts: int
    high_ts: int
    source: TenantSource
    reader: Reader
    budget: Budget
    count: Callable[[int, int, int], None]
    record_barrier: Callable[[Barrier], None]

    def pieces(self) -> Iterator[Piece]:
        """Yield the answer's bytes: row events, and an `end` line. Raises UnknownName and Gone before the first of
        them; the errors of `events` at any point, which cuts an answer off that has begun."""
        commit_ts, txn_source = self._committed()
        encoder, sent = NdjsonEncoder(), 0
        for events in self.events(commit_ts):
            self.count(len(events), len(events), 0)
            sent += len(events)
            yield from self._counted(encoder.events(events))
        end = {"type": "end", "start_ts": str(self.start_ts), "commit_ts": str(commit_ts), "rows": sent,
               "txn_source": None if txn_source is None else str(txn_source)}  # fmt: skip
        yield from self._counted(iter([orjson.dumps(end, option=orjson.OPT_APPEND_NEWLINE)]))

    def events(self, commit_ts: int) -> Iterator[Events]:
        """Yield the transaction's row events, in sets that are never empty. `commit_ts` is that of the transaction.
        Raises Undecodable, Unavailable, Gone."""
        scan = Scan(self.source, self.scope, Position(commit_ts - 1), commit_ts, self.budget)
        for batch in scan.batches():
            if batch.barrier is not None:
                self.record_barrier(batch.barrier)
                raise undecodable(batch.barrier)
            mine = (batch.events.place == int(Place.ROW)) & (batch.events.start_ts == self.start_ts)
            events = batch.events.chosen(np.flatnonzero(mine))
            if len(events):
                yield events

    def _counted(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self.count(0, 0, len(piece))
            yield piece

    def commit_ts(self) -> int:
        """Find the commit_ts of the transaction. It is looked for above its start_ts, up to LONGEST_MS after it. Raises
        UnknownName if no transaction is found, Gone if it may lie below the earliest ts kept, Unavailable."""
        return self._committed()[0]

    def _committed(self) -> tuple[int, int | None]:
        """Find a row of the transaction. Returns its commit_ts and its txn_source, a number by which TiDB marks the
        origin of a transaction. Raises UnknownName, Gone, Unavailable."""
        last = min(self.high_ts, from_physical_ms(physical_ms(self.start_ts) + LONGEST_MS), MAX_TS)
        low = max(self.start_ts, self.low_ts)
        if low < last:
            for _ in range(REPLANS + 1):
                try:
                    found = self._found(Window(low, last))
                except NotFoundYet as error:
                    reason = error
                    self.source.replan()
                    continue
                if found is not None:
                    return found
                break
            else:
                raise Unavailable(
                    f"{reason}, although the newest manifests name it: retry; if it stays, an object was deleted by "
                    "another program"
                )
        if self.start_ts < self.low_ts:
            why = f"a transaction that started at {self.start_ts} may lie below the earliest ts kept"
            raise Gone(f"{why}, {self.low_ts}", {"earliest_ts": str(self.low_ts)})
        raise UnknownName(
            f"no transaction with start_ts {self.start_ts} has changed a row between {low} and {last}: events and "
            "RowHistory have the start_ts of transactions"
        )

    def _found(self, window: Window) -> tuple[int, int | None] | None:
        """Look for a row of the transaction in the row groups that overlap `window`. Such a group may also have rows
        outside of it. Returns the commit_ts and the txn_source; None if no row is found, or if the rows lie below the
        earliest ts kept, where some may be deleted. Raises Unavailable if they lie above the resolved_ts, where tasks
        may not have all of them yet."""
        groups = plan.groups_in(self.source.segments(window), window, None)
        for opened in self.reader.open_segments([(group.segment, group.index) for group in groups]):
            rows = opened.read(_READ)
            at = pc.index(rows.column("start_ts"), self.start_ts).as_py()
            if at < 0:
                continue
            commit_ts = rows.column("commit_ts")[at].as_py()
            if commit_ts > self.high_ts:
                raise Unavailable(
                    f"the transaction with start_ts {self.start_ts} is not resolved yet: retry once resolved_ts, now "
                    f"{self.high_ts}, has reached its commit_ts {commit_ts}"
                )
            return (commit_ts, rows.column("txn_source")[at].as_py()) if commit_ts > window.low else None
        return None
