"""Prepares the events of a feed into Iceberg tables: filters them. Pure: the result depends only on the events and the
configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import ScanSource
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name, TableVersion
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.new_tables import NewTables
from tistream_changefeed.core.outgoing import Mark
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.dead_letters.skips import NO_SKIPS, SkippedEvents
from tistream_changefeed.filters.feed_filter import FeedFilter, FeedTables
from tistream_changefeed.hold.sink import DeadLetter, Encoded, PartitionsOf, TablesAt
from tistream_changefeed.protocols.table_change import TableAt, TableChange, dropped_tables, table_changes
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import never, split
from tistream_changefeed.rows.window import EventWindow, raw_changes
from tistream_changefeed.sinks.iceberg.lake_rows import lost_keys
from tistream_changefeed.sinks.left_out import LetterMark, ddl_letter, without_skipped
from tistream_changefeed.table_errors.rules import ErrorRules
from tistream_changefeed.table_errors.table_failed import TableFailed, naming

_NO_DATE = "column %s of its key has a date that no calendar has, so two rows may have one key"
_REMEDY = "set on-row-error = 'dead-letter' for the table, leave it out by filter.rules, or set mode=changelog"


@dataclass(frozen=True, slots=True)
class TableDdl:
    """A DDL: implements Mark. `changes` are the tables that it changes and that the rules include."""

    event: DdlEvent
    changes: tuple[TableChange, ...]

    @property
    def names(self) -> tuple[Name, ...]:
        """The names of these tables before and after the DDL."""
        return tuple(dict.fromkeys(name for change in self.changes for name in change.names))

    @property
    def size(self) -> int:
        """The size of the DDL's statement, in bytes (implements Mark.size)."""
        return len(self.event.query.encode())

    @property
    def content(self) -> None:
        """Return None: this mark is not a message (implements Mark.content)."""


@dataclass(frozen=True, slots=True)
class LakePipeline:
    """The pipeline of a feed into Iceberg: implements hold.sink.Pipeline, and hold.sink.FirstRows. `loads`: a new feed
    begins with the rows of its tables. `mirrors`: it keeps the tables themselves, so rows are looked for by key."""

    filter: FeedFilter
    errors: ErrorRules
    loads: bool = False
    mirrors: bool = False
    skips: SkippedEvents = NO_SKIPS

    @property
    def first_rows(self) -> LakePipeline | None:
        """This pipeline, if a new feed begins with the rows of its tables (`loads`); otherwise None."""
        return self if self.loads else None

    def includes(self, version: TableVersion) -> bool:
        """Whether the feed sends the rows of a table."""
        return self.filter.includes(version)

    def created(self, versions: Sequence[TableVersion]) -> tuple[Mark, ...]:
        """Make the mark that orders the sink to create these tables before their rows are written."""
        return (NewTables(tuple(versions)),)

    @property
    def sync_points(self) -> None:
        """Return None: there are no sync points, because each commit of a table states its ts."""

    @property
    def shared(self) -> None:
        """Return None: a feed into Iceberg has one shard (implements Pipeline.shared)."""

    @property
    def tables(self) -> FeedTables:
        """The selection of the tables whose rows must be read."""
        return self.filter.read

    def scan(self, source: ScanSource, scope: Scope, start: Position, high: int, budget: Budget) -> Scan:
        """Begin a scan of a tenant's rows from `start` to the commit_ts `high`. No update is split."""
        return Scan(source, scope, start, high, budget, moving=never)

    def opened(self, ts: int, tables_at: TablesAt, partitions: PartitionsOf) -> Iterator[tuple[Mark, ...]]:  # noqa: ARG002
        """Yield nothing: no marks are sent before the rows."""
        return iter(())

    def rows(self, events: Events, partitions: PartitionsOf) -> Encoded[RowEvents]:  # noqa: ARG002
        """Filter row events. Returns those that are sent, and the dead letters of those that are left out. Raises
        TableFailed if an event cannot be sent."""
        chosen: list[RowBatch] = []
        letters: list[DeadLetter] = []
        for batch in raw_changes(events).rows:
            with naming(batch):
                for one in self.filter.window(EventWindow((batch,), ())).rows:
                    sent, found = self._sent(one)
                    letters += found
                    chosen += [sent] if len(sent) else []
        letters.sort(key=lambda one: one.commit_ts)
        rows = RowEvents(split(EventWindow(tuple(chosen), ()), never))
        return Encoded(rows, lambda part: part, letters=tuple(letters))

    def _sent(self, batch: RowBatch) -> tuple[RowBatch, list[DeadLetter]]:
        """The events of a batch that are sent, and the dead letters of the others: those that a person has
        named and, if the configuration says so, those with a row that the mirrored table cannot have because of
        its key. If the table can have one of the two rows of such an update, that row is sent. Raises
        TableFailed."""
        sent, letters = without_skipped(batch, self.skips, by_key=self.mirrors)
        lost = lost_keys(sent) if self.mirrors else None
        if lost is None or not lost.columns:
            return sent, letters
        name, named = ".".join(batch.version.name), {at for at, _ in self.skips.rows(sent)}
        unfit = [
            Skip(
                commit_ts=int(sent.commit_ts[at]), table=name, key=sent.raw[at].as_py().hex(), reason=_NO_DATE % column
            )
            for at, column in lost.columns.items()
            if at not in named  # it deletes the old row only
        ]
        if not unfit:
            return lost.rest(sent), letters
        first = min(unfit, key=lambda one: one.commit_ts)
        if self.errors.on_row_error(batch.version.name) == "stop":
            reason = f"table {name}, commit_ts {first.commit_ts}, key {first.key}: {first.reason}; {_REMEDY}"
            raise TableFailed(batch.version.name, first.commit_ts, bytes.fromhex(first.key or ""), reason)
        _, more = without_skipped(sent, replace(self.skips, named=unfit))
        return lost.rest(sent), [*letters, *more]

    def concerned(self, event: DdlEvent) -> Sequence[Name]:
        """The tables that a DDL concerns and whose events the feed sends; the table "" stands for all tables of a
        database. Empty if the feed does not send the DDL."""
        if not self.filter.sends(event):
            return ()
        names = event.involved or ((event.database, event.table),)
        return [name for name in names if not name[1] or self.filter.includes_name(name)]

    def ddl(self, event: DdlEvent, table_at: TableAt, partitions: PartitionsOf) -> tuple[Mark, ...]:  # noqa: ARG002
        """The mark for a DDL: a TableDdl, or a dead letter if a person has named the DDL. Empty if the DDL changes only
        tables that the feed leaves out."""
        if not self.filter.sends(event):
            return ()
        letter = ddl_letter(event, self.skips)
        if letter is not None:
            return (letter,)
        found = table_changes(event, table_at) if event.table else dropped_tables(event, table_at)
        changes = tuple(one for one in found if self._included(one))
        return (TableDdl(event, changes),) if changes else ()

    def _included(self, change: TableChange) -> bool:
        versions = [one for one in (change.before, change.after) if one is not None]
        return any(one.head.kind == "table" and self.filter.includes(one) for one in versions)

    def resolved(self, ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:  # noqa: ARG002
        """Return nothing: the feed has no resolved messages, because each snapshot of a table states the position of
        the feed."""
        return ()

    def grown(self, ts: int, resolved_ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:  # noqa: ARG002
        """Return nothing: tables have no partitions."""
        return ()

    def own(self, marks: Sequence[Mark]) -> tuple[Mark, ...]:
        """All of `marks`, because a feed into Iceberg has one shard."""
        return tuple(marks)

    def skipped(self, marks: Sequence[Mark]) -> int:
        """The number of dead letters among these marks."""
        return sum(isinstance(one, LetterMark) for one in marks)
