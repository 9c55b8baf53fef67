"""Encodes the events of a feed for files: filters them, splits updates, and finds the directory of each. Pure: the
result depends only on the events and the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tistream.errors import CannotEncode
from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import ScanSource
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name
from tistream_changefeed.core.outgoing import Mark
from tistream_changefeed.dead_letters.skips import NO_SKIPS, SkippedEvents
from tistream_changefeed.filters.column_selector import ColumnSelector, selected, selector_of
from tistream_changefeed.filters.feed_filter import FeedFilter, FeedTables
from tistream_changefeed.hold.sink import DeadLetter, Encoded, PartitionsOf, TablesAt
from tistream_changefeed.protocols.table_change import TableAt, table_changes
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import Splitting, split
from tistream_changefeed.rows.window import EventWindow, raw_changes
from tistream_changefeed.sinks.left_out import LetterMark, ddl_letter, without_skipped
from tistream_changefeed.sinks.storage.paths import day_of, name_problem
from tistream_changefeed.sinks.storage.placed_rows import FilePlace, PlacedBatch, PlacedRows, in_order
from tistream_changefeed.sinks.storage.schema_file import schema_files
from tistream_changefeed.sinks.storage.target import StorageTarget
from tistream_changefeed.table_errors.rules import ErrorRules
from tistream_changefeed.table_errors.table_failed import naming


@dataclass(frozen=True, slots=True)
class StoragePipeline:
    """The pipeline of a feed into files: implements hold.sink.Pipeline."""

    target: StorageTarget
    filter: FeedFilter
    selectors: Sequence[ColumnSelector]
    splitting: Splitting
    errors: ErrorRules
    skips: SkippedEvents = NO_SKIPS

    @property
    def first_rows(self) -> None:
        """Return None: a feed into files begins without rows (implements Pipeline.first_rows)."""

    @property
    def sync_points(self) -> None:
        """Return None: a feed into files has no sync points (implements Pipeline.sync_points)."""

    @property
    def shared(self) -> None:
        """Return None: a feed into files has one shard (implements Pipeline.shared)."""

    @property
    def tables(self) -> FeedTables:
        """The selection of the tables whose rows must be read."""
        return self.filter.read

    def scan(self, source: ScanSource, scope: Scope, start: Position, high: int, budget: Budget) -> Scan:
        """Begin a scan of a tenant's events after the position `start`, up to the commit_ts `high`
        (inclusive)."""
        numbered = self.target.format.numbered
        return Scan(source, scope, start, high, budget, numbered=numbered, moving=self.splitting)

    def opened(self, ts: int, tables_at: TablesAt, partitions: PartitionsOf) -> Iterator[tuple[Mark, ...]]:  # noqa: ARG002
        """Yield nothing: no marks are sent before the rows."""
        return iter(())

    def rows(self, events: Events, partitions: PartitionsOf) -> Encoded[PlacedRows]:  # noqa: ARG002
        """Filter row events, split updates, and encode the rows for their directories, in the order in which they are
        sent. Raises TableFailed if an event cannot be encoded."""
        chosen: list[RowBatch] = []
        letters: list[DeadLetter] = []
        for batch in raw_changes(events).rows:  # filters see updates, not their halves
            with naming(batch):
                for one in self.filter.window(EventWindow((batch,), ())).rows:
                    sent, found = without_skipped(one, self.skips, self._selected(one))
                    letters += found
                    chosen += [sent] if len(sent) else []
        letters.sort(key=lambda one: one.commit_ts)
        placed: list[PlacedBatch] = []
        for batch in split(EventWindow(tuple(chosen), ()), self.splitting).rows:
            with naming(batch):
                placed += self._placed(batch)
        return Encoded(in_order(placed), lambda part: part, letters=tuple(letters))

    def concerned(self, event: DdlEvent) -> Sequence[Name]:
        """The tables that a DDL concerns and whose events the feed sends; the table "" stands for all tables of a
        database. Empty if the feed does not send the DDL."""
        if not self.filter.sends(event):
            return ()
        names = event.involved or ((event.database, event.table),)
        return [name for name in names if not name[1] or self.filter.includes_name(name)]

    def ddl(self, event: DdlEvent, table_at: TableAt, partitions: PartitionsOf) -> tuple[Mark, ...]:  # noqa: ARG002
        """The schema files of the tables that a DDL changes and that the rules include, or the dead letter of a DDL
        that a person has named. Empty if the feed does not send the DDL. Raises CannotEncode if a name cannot be a
        directory's."""
        if not self.filter.sends(event):
            return ()
        letter = ddl_letter(event, self.skips)
        if letter is not None:
            return (letter,)
        changes = table_changes(event, table_at)
        included = [change for change in changes if any(map(self.filter.includes_name, change.names))]
        marks = schema_files(event, included, column_ids=self.target.column_ids)
        for mark in marks:
            _check_name(mark.name)
        return marks

    def resolved(self, ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:  # noqa: ARG002
        """Return nothing: the feed has no resolved messages, because `metadata` has the checkpoint."""
        return ()

    def grown(self, ts: int, resolved_ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:  # noqa: ARG002
        """Return nothing: there are no topics."""
        return ()

    def own(self, marks: Sequence[Mark]) -> tuple[Mark, ...]:
        """All of `marks`, because a feed into files has one shard."""
        return tuple(marks)

    def skipped(self, marks: Sequence[Mark]) -> int:
        """The number of dead letters among these marks."""
        return sum(isinstance(one, LetterMark) for one in marks)

    def _selected(self, batch: RowBatch) -> RowBatch:
        selector = selector_of(self.selectors, batch.version)
        return batch if selector is None else selected(batch, selector.sent(batch.version.table))

    def _placed(self, batch: RowBatch) -> Iterator[PlacedBatch]:
        """Encode a batch, and yield its events in one PlacedBatch for each day. The events ascend in commit_ts, so
        those of one day are consecutive. Raises CannotEncode if the table's name cannot be a directory's."""
        _check_name(batch.version.name)
        layout = self.target.layout
        rows, sizes = self.target.format.rows(self._selected(batch))
        hashes = self.target.format.hashes(rows, batch.commit_ts)
        parted = batch.version.head.partition_ids is not None and layout.partition_separator
        days = day_of(batch.commit_ts)
        bounds = [0, *(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), len(batch)]
        for start, end in pairwise(bounds):
            date = layout.dated(int(batch.commit_ts[start]))
            place = FilePlace(batch.version, batch.physical_id if parted else None, date)
            part = slice(start, end)
            piece = rows.slice(start, end - start)
            yield PlacedBatch(place, piece, batch.at[part], batch.commit_ts[part], sizes[part], hashes[part])


def _check_name(name: Name) -> None:
    problem = name_problem(*name)
    if problem is not None:
        raise CannotEncode(f"{'.'.join(filter(None, name))} cannot be the name of a directory: {problem}; leave it out "
                           "by filter.rules, or rename it")  # fmt: skip
