"""Defines the interfaces through which a holder (the worker that runs a shard of a feed) uses a sink, and the pipeline
that encodes events for it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from tistream.model.ts import Window
from tistream.read.chosen_scope import TableChoice
from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import ScanSource
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name, TableVersion
from tistream.wire.bulk.changefeeds import HeldBy
from tistream_changefeed.core.outgoing import Mark, Payload
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.shard import Transaction
from tistream_changefeed.core.sync_points import SyncPoints
from tistream_changefeed.protocols.messages import ClaimFile
from tistream_changefeed.protocols.table_change import TableAt
from tistream_changefeed.table_errors.rules import ErrorRules

TablesAt = Callable[[int], Sequence[TableVersion]]
"""Returns the base tables of the tenant at a ts."""
PartitionsOf = Callable[[str], int]
"""Returns the number of partitions of a topic."""


class Sink(Protocol):
    """One holder's connection to the system that a feed writes to. Every call may raise FeedFailed; the holder then
    closes the sink, and makes another one."""

    @property
    def where(self) -> str:
        """The name of the sink in errors, without secrets."""

    def open(self) -> tuple[Progress | None, Mapping[str, Mapping[int, int]]]:
        """Fence earlier holders. Then read the shard's progress (None if the sink has no progress), and the end offsets
        of the topics that it names."""

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic that the feed writes. Creates the topic if it does not
        exist."""

    def topics(self) -> Mapping[str, int]:
        """The topics that resolved messages go to, with their numbers of partitions."""

    def shards(self) -> Mapping[int, Progress]:
        """The progress that the shards of the feed have committed, by shard, as far as the sink has any. That of this
        shard may be missing."""

    def keep(self, claims: Sequence[ClaimFile]) -> None:
        """Write the claim-check files to which messages refer, before the messages are written."""

    @property
    def waits(self) -> bool:
        """Whether `write` has taken rows that are not durable yet, because the sink collects more rows first."""

    @property
    def held_by(self) -> HeldBy | None:
        """What a call of `write` that has not returned waits for; None if that is not known. Any thread may ask."""

    def write(self, transaction: Transaction) -> bool:
        """Make a transaction durable, together with earlier ones that are not durable yet: all of them, or nothing.
        Returns False if the sink collects more rows before it does so. Raises TablesRefused if the sink refuses rows or
        a DDL of some tables, and has written nothing."""

    def close(self) -> None:
        """Close the connections to the sink."""


class RowsOf(Protocol):
    """A function that reads rows of a table again."""

    def __call__(
        self, version: TableVersion, window: Window, ids: Collection[int] | None = None, *, gone: bool = False
    ) -> Iterator[Payload]:
        """Read the rows of a table as of the end of a window, of those that have changed in it, in the order of their
        raw keys. Yields them in parts, as inserts that the pipeline has encoded. `ids`: only the rows of these physical
        ids; None: of all that the table has. `gone`: the rows are deleted, so some of them may be missing in the pool,
        and no filter leaves one out. Raises FeedFailed, Gone, and the errors of reads of the pool."""


@runtime_checkable
class ReadsAgain(Protocol):
    """A Sink that may read rows of a table again while it writes a DDL."""

    def reads_again(self, rows_of: RowsOf) -> None:
        """Set the function that reads rows again. Called once, before the sink is opened."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter: the message that replaces an event which the feed leaves out. `commit_ts` is that of the event."""

    commit_ts: int
    sent: Mark


P = TypeVar("P", bound=Payload)


@dataclass(frozen=True, slots=True)
class Encoded(Generic[P]):
    """The encoded messages of some row events, one for each event. `framed` converts consecutive parts of `messages`,
    in order, to what one transaction sends: a protocol may put several events into one message, or insert the schemas
    of tables; a database gets statements. `claims` are the files that messages refer to. `letters` are the dead letters
    of events that are left out, in the order of commits."""

    messages: P
    framed: Callable[[P], P]
    claims: tuple[ClaimFile, ...] = ()
    letters: tuple[DeadLetter, ...] = ()


class FirstRows(Protocol):
    """The rows as of its start_ts with which a new feed begins."""

    def includes(self, version: TableVersion) -> bool:
        """Whether this shard sends the rows of a table."""

    def created(self, versions: Sequence[TableVersion]) -> tuple[Mark, ...]:
        """Make the marks that order the sink to create these tables before their rows are written."""


class Pipeline(Protocol):
    """Encodes events for a sink. The result depends on the configuration of the feed and on what was sent since
    `opened`."""

    @property
    def tables(self) -> TableChoice:
        """The tables whose rows must be read."""

    def scan(self, source: ScanSource, scope: Scope, start: Position, high: int, budget: Budget) -> Scan:
        """Begin a scan of a tenant's events after the position `start`, up to the commit_ts `high` (inclusive).
        It decodes the columns that the feed needs, and returns both halves of an update that the feed splits,
        so that the deletes of a transaction of any size come before its puts."""

    def opened(self, ts: int, tables_at: TablesAt, partitions: PartitionsOf) -> Iterator[tuple[Mark, ...]]:
        """Reset the state, because the sink was opened again, and messages that were sent before may have been aborted.
        The shard continues after `ts`. Yields, in parts, the messages that must be sent before any row."""

    @property
    def first_rows(self) -> FirstRows | None:
        """The rows with which a new feed begins; None if it begins without any."""

    @property
    def sync_points(self) -> SyncPoints | None:
        """The sync points, at which the sink has the state of exactly one ts and marks that; None if the feed has
        none."""

    @property
    def shared(self) -> Callable[[Name], bool] | None:
        """Returns whether several shards of the feed send rows of a table, or of a database if the table is ""; None if
        each table has one shard."""

    @property
    def errors(self) -> ErrorRules:
        """The rules for a table that has an event which cannot be sent: stop the table, or write a dead letter."""

    def rows(self, events: Events, partitions: PartitionsOf) -> Encoded[Any]:
        """Encode row events in the order in which they are sent. Raises TableFailed."""

    def concerned(self, event: DdlEvent) -> Sequence[Name]:
        """The tables that a DDL concerns and whose events the feed sends; the table "" stands for all tables of a
        database. Empty if the feed does not send the DDL."""

    def ddl(self, event: DdlEvent, table_at: TableAt, partitions: PartitionsOf) -> tuple[Mark, ...]:
        """Encode a DDL, as one message for each partition that gets it; empty if the feed does not send it. `table_at`
        finds tables in the schema history."""

    def resolved(self, ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:
        """A resolved message for every partition of these topics that this shard writes; empty if the protocol has no
        such message."""

    def grown(self, ts: int, resolved_ts: int, topics: Mapping[str, int]) -> tuple[Mark, ...]:
        """The messages that announce that these topics have other numbers of partitions above `ts`. Each partition that
        this shard writes gets a resolved message for `ts`, unless a higher one was sent (`resolved_ts`), and then the
        number of partitions."""

    def own(self, marks: Sequence[Mark]) -> tuple[Mark, ...]:
        """Only the messages that this shard writes."""

    def skipped(self, marks: Sequence[Mark]) -> int:
        """The number of dead letters among these messages."""
