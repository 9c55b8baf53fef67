"""Compares the windows that a feed into a database has stored with the events that the tenant's rows have now. So a
difference of a table is known to be one of what the feed has written, or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from tistream.errors import Gone
from tistream.model.ids import TenantKey
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Place, Position
from tistream.read.scan import Budget
from tistream.schema.visible import Name
from tistream_changefeed.fingerprints.rows import event_rows
from tistream_changefeed.fingerprints.windows import ComparedWindows, FoundParts, SentWindow, compared
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.sinks.mysql.mysql_pipeline import MySqlPipeline
from tistream_changefeed.sinks.mysql.payload import CommittedEvents

EVENTS_MAX = 100_000  # of the windows that are compared; at most twice as many are read


@dataclass(frozen=True, slots=True)
class TableWindows:
    """Compares the windows of one shard. `pipeline`: that of the shard. `late` returns whether time is up: then the
    windows above what was read are left out."""

    tenant: TenantKey
    pipeline: MySqlPipeline
    view: Pool
    budget: Budget
    late: Callable[[], bool]

    def result(self, windows: Sequence[SentWindow], from_ts: int, to_ts: int, only: Name | None) -> ComparedWindows:
        """Compare the newest windows that have about EVENTS_MAX events, as far as the pool still has their events. A
        late window (SentWindow.late: of tables that catch up) which begins before all others is left out, with those
        that it overlaps, because its table may have stopped days before; the result's `late` names its tables. Windows
        above the ts at which reading stopped (time is up, an undecodable row, 2 * EVENTS_MAX events) are left out too.
        `windows`: those of the shard that are stored, in the order of commits; only those in (`from_ts`, `to_ts`] are
        compared. `only`: the one table that is compared; None: all. Raises the errors of reads of the pool."""
        within = [one for one in windows if from_ts <= one.after_ts and one.until_ts <= to_ts]
        newest = newest_events(within)
        chosen = [one for one in newest if not one.late and self._served(one.after_ts)]
        if not chosen:
            return ComparedWindows(late=frozenset(name for one in newest if one.late for name in one.tables))
        low_ts, found = min(one.after_ts for one in chosen), FoundParts()
        longer = [one for one in windows if one.late and one.after_ts < low_ts < one.until_ts]
        low_ts = max([low_ts, *(one.until_ts for one in longer)])  # those below overlap one that is left out
        names = frozenset(name for one in longer for name in one.tables)
        if low_ts >= to_ts:
            return ComparedWindows(late=names)
        read_ts = self._read(found, low_ts, to_ts)
        return replace(compared(windows, found.events(), low_ts, read_ts, only), late=names)

    def _served(self, ts: int) -> bool:
        """Whether the events above `ts` are still in the pool."""
        try:
            self.view.check_served(ts)
        except Gone:
            return False
        return True

    def _read(self, found: FoundParts, low_ts: int, to_ts: int) -> int:
        """Read the events with `low_ts` < commit_ts <= `to_ts`, and return the ts up to which they were read."""
        scope, read_ts, count = ChosenScope(self.tenant, choice=self.pipeline.tables), low_ts, 0
        for batch in self.pipeline.scan(self.view.source, scope, Position(low_ts), to_ts, self.budget).batches():
            rows = batch.events.chosen(np.flatnonzero(batch.events.place != int(Place.DDL)))
            if len(rows):
                events = cast(CommittedEvents, self.pipeline.rows(rows, lambda _: 1).messages)
                for one in event_rows(events.window.rows):
                    found.add(*one)
                    count += len(one[1])
            read_ts = read_ts if batch.through is None else batch.through
            if self.late() or batch.barrier is not None or count > 2 * EVENTS_MAX:
                break
        return read_ts


def newest_events(windows: Sequence[SentWindow]) -> list[SentWindow]:
    """The last of `windows`, which are in the order of commits, with at most EVENTS_MAX events in all; at least one, if
    there are any. Their order stays."""
    counts = [sum(table.events for table in one.tables.values()) for one in reversed(windows)]
    count = int(np.searchsorted(np.cumsum(counts), EVENTS_MAX, side="right")) if counts else 0
    return list(windows[-max(1, count) :])
