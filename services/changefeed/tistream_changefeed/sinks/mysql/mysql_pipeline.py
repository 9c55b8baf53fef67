"""Prepares the events of a feed into MySQL: filters them, and computes the net change of each window. Pure: the result
depends only on the events and the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import ScanSource
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.core.new_tables import NewTables
from tistream_changefeed.core.outgoing import Mark, Payload
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.core.sync_points import SyncPoints
from tistream_changefeed.dead_letters.skips import SkippedEvents
from tistream_changefeed.dispatch.table_shards import ALONE, ShardTables, TableShard
from tistream_changefeed.filters.feed_filter import FeedFilter
from tistream_changefeed.hold.sink import DeadLetter, Encoded, PartitionsOf, TablesAt
from tistream_changefeed.protocols.table_change import TableAt, table_changes
from tistream_changefeed.rows.net import net
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import by_unique_index, split
from tistream_changefeed.rows.window import EventWindow, raw_changes
from tistream_changefeed.sinks.left_out import LetterMark, ddl_letter, without_skipped
from tistream_changefeed.sinks.mysql.ddl import is_sent
from tistream_changefeed.sinks.mysql.payload import CommittedEvents, DdlMark, NetWindow
from tistream_changefeed.table_errors.rules import ErrorRules
from tistream_changefeed.table_errors.table_failed import naming


@dataclass(frozen=True, slots=True)
class MySqlPipeline:
    """The pipeline of a feed into MySQL: implements hold.sink.Pipeline. `loads`: whether the feed begins with the rows
    of its tables (`snapshot = "now"`)."""

    filter: FeedFilter
    errors: ErrorRules
    skips: SkippedEvents
    loads: bool = False
    sync_points: SyncPoints | None = None
    shard: TableShard = ALONE

    @property
    def first_rows(self) -> MySqlPipeline | None:
        """This pipeline, if a new feed begins with the rows of its tables (`loads`); otherwise None."""
        return self if self.loads else None

    def includes(self, version: TableVersion) -> bool:
        """Whether this shard sends the rows of a table."""
        return self.filter.includes(version) and self.shard.has(version)

    def created(self, versions: Sequence[TableVersion]) -> tuple[Mark, ...]:
        """The mark that orders the sink to create these tables before their rows."""
        return (NewTables(tuple(versions)),)

    @property
    def shared(self) -> None:
        """Return None: one shard sends the rows of a table (implements Pipeline.shared)."""

    @property
    def tables(self) -> ShardTables:
        """The selection of the tables whose rows must be read."""
        return ShardTables(self.filter.read, self.shard)

    def scan(self, source: ScanSource, scope: Scope, start: Position, high: int, budget: Budget) -> Scan:
        """Begin a scan of a tenant's rows from `start` to the commit_ts `high`. Both halves of an update that changes a
        unique value are read, so that the deletes of a transaction of any size come before its puts."""
        return Scan(source, scope, start, high, budget, moving=by_unique_index)

    def opened(self, ts: int, tables_at: TablesAt, partitions: PartitionsOf) -> Iterator[tuple[Mark, ...]]:  # noqa: ARG002
        """Yield nothing: no marks are sent before the rows."""
        yield from ()

    def rows(self, events: Events, partitions: PartitionsOf) -> Encoded[Payload]:  # noqa: ARG002
        """Filter row events, and split updates that change a unique value. Returns the events, of which a transaction
        writes the net change, and the dead letters of those that are left out. Raises TableFailed if a filter does not
        fit a table."""
        letters: list[DeadLetter] = []
        kept = []
        for batch in self._filtered(raw_changes(events)):
            sent, found = without_skipped(batch, self.skips, by_key=True)
            letters += found
            kept.append(sent)
        window = split(EventWindow(tuple(batch for batch in kept if len(batch)), ()), by_unique_index)
        letters.sort(key=lambda one: one.commit_ts)
        return Encoded(CommittedEvents(window), _net, letters=tuple(letters))

    def _filtered(self, window: EventWindow) -> Iterator[RowBatch]:
        for batch in window.rows:
            with naming(batch):
                yield from self.filter.window(EventWindow((batch,), ())).rows

    def concerned(self, event: DdlEvent) -> Sequence[Name]:
        """The tables that a DDL concerns and whose events the feed sends; the table "" stands for all tables of a
        database. Empty if the feed does not send the DDL."""
        if not self.filter.sends(event) or not is_sent(event.action):
            return ()
        names = event.involved or ((event.database, event.table),)
        return [name for name in names if not name[1] or self.filter.includes_name(name)]

    def ddl(self, event: DdlEvent, table_at: TableAt, partitions: PartitionsOf) -> tuple[Mark, ...]:  # noqa: ARG002
        """The mark for a DDL: a DdlMark, or a dead letter if a person has named the DDL. Empty if the feed does not
        send it."""
        names = tuple(self.concerned(event))
        if not names:
            return ()
        letter = ddl_letter(event, self.skips)
        if letter is not None:
            return (letter,)
        return (DdlMark(event, table_changes(event, table_at), names),)

    def resolved(self, ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:  # noqa: ARG002
        """Return nothing: the feed has no resolved messages, because the stored progress shows up to which ts the
        database is complete."""
        return ()

    def grown(self, ts: int, resolved_ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:  # noqa: ARG002
        """Return nothing: a database has no partitions."""
        return ()

    def own(self, marks: Sequence[Mark]) -> tuple[Mark, ...]:
        """All of `marks` for the first shard, which executes DDLs and marks sync points; none for the others."""
        return () if self.shard.number else tuple(marks)

    def skipped(self, marks: Sequence[Mark]) -> int:
        """The number of dead letters among these marks."""
        return sum(isinstance(one, LetterMark) for one in marks)


def _net(part: Payload) -> Payload:
    events = cast(RowEvents, part)  # rows() returns no other payload
    through_ts = int(events.commit_ts[-1]) if len(events) else 0
    return NetWindow(net(events.window), through_ts)
