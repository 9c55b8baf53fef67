"""Encodes events as the messages of a feed: filters them, splits updates, assigns partitions. Pure: the messages depend
only on the events, the configuration, and the position at which the holder has begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import ScanSource
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.core.outgoing import NOTHING, Mark, Outgoing, SentMessage
from tistream_changefeed.core.shard import everywhere, to_partitions
from tistream_changefeed.dead_letters.letter import of_ddl, of_row
from tistream_changefeed.dead_letters.skips import NO_SKIPS, SkippedEvents, without
from tistream_changefeed.dispatch.dispatchers import Dispatchers
from tistream_changefeed.dispatch.ownership import WHOLE, Ownership
from tistream_changefeed.filters.column_selector import ColumnSelector, selected, selector_of
from tistream_changefeed.filters.feed_filter import FeedFilter, FeedTables
from tistream_changefeed.filters.needed_columns import NeededColumns
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.hold.sink import DeadLetter, Encoded, PartitionsOf, TablesAt
from tistream_changefeed.protocols.limits import Limit, MessageTooLarge, check_sizes
from tistream_changefeed.protocols.messages import Encoder, Message, Messages
from tistream_changefeed.protocols.open_protocol.frames import framed
from tistream_changefeed.protocols.table_change import TableAt, table_changes
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import Splitting, split
from tistream_changefeed.rows.window import EventWindow, raw_changes, taken
from tistream_changefeed.schema_messages import SchemaMessages
from tistream_changefeed.table_errors.rules import BY_HAND, ErrorRules
from tistream_changefeed.table_errors.table_failed import TableFailed, naming


@dataclass(frozen=True, slots=True)
class Framing:
    """Puts several events of open-protocol into one message, at most `events_max` events and `bytes_max` bytes."""

    events_max: int
    bytes_max: int

    def frame(self, part: Outgoing) -> Outgoing:
        """Convert messages of one event each to messages of several events. The order within a partition is kept. The
        commit_ts of a message is that of its last event."""
        if not len(part):
            return part
        order = np.lexsort((part.partition, part.topic))  # it is stable
        topic, partition = part.topic[order], part.partition[order]
        breaks = np.flatnonzero((topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])) + 1
        found = framed(Messages(part.keys, part.values), part.places[order], breaks, self.events_max, self.bytes_max)
        first, last = found.starts[:-1], found.starts[1:] - 1
        return Outgoing(
            part.topics, topic[first], partition[first], found.keys, found.values, part.commit_ts[order][last]
        )


@dataclass(slots=True)
class FeedPipeline:
    """The pipeline of a feed: implements hold.sink.Pipeline. If `framing` is None, each event is a message of its own.
    `schemas` is set if the protocol sends the schemas of tables."""

    encoder: Encoder
    filter: FeedFilter
    selectors: Sequence[ColumnSelector]
    dispatchers: Dispatchers
    splitting: Splitting
    limit: Limit = field(default_factory=Limit)
    framing: Framing | None = None
    schemas: SchemaMessages | None = None
    skips: SkippedEvents = NO_SKIPS
    errors: ErrorRules = BY_HAND
    ownership: Ownership = WHOLE
    needed: NeededColumns | None = None  # None: the values of all columns
    announcing: Callable[[int, int], Message] | None = None  # makes the message of a ts and a number of partitions

    @property
    def first_rows(self) -> None:
        """Return None: a feed with this pipeline begins without rows (implements Pipeline.first_rows)."""

    @property
    def sync_points(self) -> None:
        """Return None: sinks with this pipeline have no sync points (implements Pipeline.sync_points)."""

    @property
    def shared(self) -> Callable[[Name], bool] | None:
        """Which tables have rows in several partitions, and so in several shards (implements Pipeline.shared)."""
        return self.dispatchers.spreads if self.ownership.shards > 1 and self.dispatchers.spread else None

    @property
    def tables(self) -> FeedTables:
        """The selection of the tables whose rows must be read."""
        return self.filter.read

    def scan(self, source: ScanSource, scope: Scope, start: Position, high: int, budget: Budget) -> Scan:
        """Begin a scan of a tenant's events after the position `start`, up to the commit_ts `high` (inclusive).
        It decodes only the columns that the feed needs."""
        return Scan(
            source,
            scope,
            start,
            high,
            budget,
            numbered=self.encoder.numbered,
            moving=self.splitting,
            needed=self.needed,
        )

    def opened(self, ts: int, tables_at: TablesAt, partitions: PartitionsOf) -> Iterator[tuple[SentMessage, ...]]:
        """Forget which schemas were sent, because the sink was opened again. Yields the messages with the schemas of
        all tables as of `ts`, if the protocol sends them at the start; otherwise nothing."""
        schemas = self.schemas
        if schemas is None:
            return
        schemas.begin()
        if schemas.rule.all_at_start and schemas.rule.sends:
            for version in tables_at(ts):
                if self.filter.includes(version):
                    topic = self.dispatchers.topic(*version.name)
                    yield schemas.first(version, ts, topic, partitions(topic))

    def rows(self, events: Events, partitions: PartitionsOf) -> Encoded[Outgoing]:
        """Filter row events, split key updates, and encode those in this shard's partitions, in the order in which they
        are sent. Returns the messages, and the dead letters of events that are left out. Raises TableFailed if an event
        cannot be encoded."""
        window = split(self._filtered(raw_changes(events)), self.splitting)  # filters see updates, not their halves
        letters: list[DeadLetter] = []
        parts: list[_Part] = []
        for batch in window.rows:
            part, left_out = self._sent(batch, partitions)
            letters += left_out
            if part is not None:
                parts.append(part)
        letters.sort(key=lambda one: one.commit_ts)
        claims = tuple(claim for part in parts for claim in part.messages.claims)
        versions = list(dict.fromkeys(part.batch.version for part in parts))
        messages, framing, schemas = _in_order(parts, versions), self.framing, self.schemas
        if schemas is not None:
            return Encoded(messages, lambda part: schemas.inserted(part, versions, partitions), claims, tuple(letters))
        sent = Outgoing.by_partition if framing is None else framing.frame
        return Encoded(messages, sent, claims, tuple(letters))

    def _filtered(self, window: EventWindow) -> EventWindow:
        """The events of a window that the feed's filters keep. Updates are not split yet. Raises TableFailed if a
        filter does not fit a table."""
        rows: list[RowBatch] = []
        for batch in window.rows:
            with naming(batch):
                rows += self.filter.window(EventWindow((batch,), ())).rows
        return EventWindow(tuple(rows), ())

    def _sent(self, batch: RowBatch, partitions: PartitionsOf) -> tuple[_Part | None, list[DeadLetter]]:
        """Encode a batch. Returns its messages, and the dead letters of the events that are left out: those that a
        person has named and, if the configuration says so, those that are too large."""
        letters: list[DeadLetter] = []
        skips = self.skips
        with naming(batch):
            batch = self._own(batch, partitions)
        while True:
            batch, found = self._apart(batch, skips, partitions)
            letters += found
            if not len(batch):
                return None, letters
            try:
                with naming(batch):
                    return self._part(batch, partitions), letters
            except TableFailed as error:
                large = error.__cause__
                dead = self.errors.on_row_error(batch.version.name) == "dead-letter"
                if not dead or not isinstance(large, MessageTooLarge):
                    raise
                skips = self.skips.of(large)

    def _apart(
        self, batch: RowBatch, skips: SkippedEvents, partitions: PartitionsOf
    ) -> tuple[RowBatch, list[DeadLetter]]:
        """Divide a batch. Returns the events that are sent, and the dead letters of the others."""
        left_out = skips.rows(batch)
        if not left_out:
            return batch, []
        partitions(skips.topic)
        selector = selector_of(self.selectors, batch.version)
        shown = batch if selector is None else selected(batch, selector.sent(batch.version.table))
        letters = [
            DeadLetter(skip.commit_ts, of_row(shown, at, skip, skips.topic, skips.bytes_max)) for at, skip in left_out
        ]
        return taken(batch, np.flatnonzero(without(batch, left_out))), letters

    def _own(self, batch: RowBatch, partitions: PartitionsOf) -> RowBatch:
        """The events of a batch whose partitions this shard writes."""
        if self.ownership.shards == 1:
            return batch
        topic, rule = self.dispatchers.topic(*batch.version.name), self.dispatchers.rule(*batch.version.name)
        own = self.ownership.chosen(topic, rule.partitions(batch, partitions(topic)))
        return taken(batch, np.flatnonzero(own))

    def _part(self, batch: RowBatch, partitions: PartitionsOf) -> _Part:
        """Encode all events of a batch, and compute their partitions. Raises MessageTooLarge; CannotEncode; UnfitTable
        if the table does not fit the partition rule."""
        topic, rule = self.dispatchers.topic(*batch.version.name), self.dispatchers.rule(*batch.version.name)
        places = rule.partitions(batch, partitions(topic))
        selector = selector_of(self.selectors, batch.version)
        if selector is not None:
            batch = selected(batch, selector.sent(batch.version.table))
        messages = self.encoder.rows(batch)
        check_sizes(batch, messages, self.limit)  # of protocols that know no smaller form
        return _Part(batch, messages, topic, places)

    def concerned(self, event: DdlEvent) -> Sequence[Name]:
        """The tables that a DDL concerns and whose events the feed sends; the table "" stands for all tables of a
        database. Empty if the feed does not send the DDL."""
        if not self._told(event):
            return ()
        names = event.involved or ((event.database, event.table),)
        return [name for name in names if not name[1] or self.filter.includes_name(name)]

    def _told(self, event: DdlEvent) -> bool:
        """Whether the feed sends a DDL. Of a job without a statement, such as TiDB's own note that the replicas of a
        table in TiFlash are ready, there is nothing to send: a reader would execute the empty text."""
        return bool(event.query) and self.filter.sends(event)

    def ddl(self, event: DdlEvent, table_at: TableAt, partitions: PartitionsOf) -> tuple[SentMessage, ...]:
        """The messages of a DDL, one for each partition that gets it; empty if the feed does not send it. They do not
        name tables that the rules leave out. A DDL that a person has named is replaced by its dead letter."""
        if not self._told(event):
            return ()
        skip = self.skips.ddl(event)
        if skip is not None:
            partitions(self.skips.topic)
            return (of_ddl(event, skip, self.skips.topic, self.skips.bytes_max),)
        changes = table_changes(event, table_at) if self.encoder.describes_tables else ()
        included = [change for change in changes if any(map(self.filter.includes_name, change.names))]
        message = self.encoder.ddl(event, included)
        if message is None:
            return ()
        topics = self.dispatchers.ddl_topics(event)
        return tuple(sent for topic in topics for sent in to_partitions(message, partitions(topic), topic))

    def resolved(self, ts: int, topics: Mapping[str, int]) -> tuple[SentMessage, ...]:
        """A resolved message for every partition of these topics that the shard writes, except the dead letter topic;
        empty if the protocol has no such message."""
        message = self.encoder.resolved(ts)
        return () if message is None else self.own(everywhere(message, self._resolving(topics)))

    def grown(self, ts: int, resolved_ts: int, topics: Mapping[str, int]) -> tuple[SentMessage, ...]:
        """The messages which announce that these topics have other numbers of partitions above `ts`: resolved messages
        for `ts`, unless one for a higher ts (`resolved_ts`) was sent, and then the number to each partition that this
        shard writes. Empty if the feed does not announce the number."""
        announcing = self.announcing
        if announcing is None:
            return ()
        marks = self.resolved(ts, topics) if resolved_ts <= ts else ()
        for topic, count in sorted(self._resolving(topics).items()):
            marks += self.own(everywhere(announcing(ts, count), {topic: count}))
        return marks

    def _resolving(self, topics: Mapping[str, int]) -> dict[str, int]:
        """The given topics without the dead letter topic, which gets no resolved messages."""
        return {name: count for name, count in topics.items() if name != self.skips.topic}

    def own(self, marks: Sequence[Mark]) -> tuple[SentMessage, ...]:
        """The messages among `marks` that this shard writes."""
        return self.ownership.own(one for one in marks if isinstance(one, SentMessage))

    def skipped(self, marks: Sequence[Mark]) -> int:
        """The number of dead letters among these messages."""
        return sum(isinstance(one, SentMessage) and one.topic == self.skips.topic for one in marks)


@dataclass(frozen=True, slots=True)
class _Part:
    """The messages of one batch. The position of each in the window is the `at` of its event."""

    batch: RowBatch
    messages: Messages
    topic: str
    partitions: Int64s


def _in_order(parts: Sequence[_Part], versions: Sequence[TableVersion]) -> Outgoing:
    if not parts:
        return NOTHING
    topics = tuple(sorted({part.topic for part in parts}))
    order = np.argsort(np.concatenate([part.batch.at for part in parts]), kind="stable")
    each = [part.messages.keys for part in parts]
    keys = None if all(one is None for one in each) else _concatenated(each, parts)
    values = pa.concat_arrays([part.messages.values for part in parts])
    commit_ts = np.concatenate([part.batch.commit_ts for part in parts])
    shapes = {version: number for number, version in enumerate(versions)}
    return Outgoing(
        topics,
        np.concatenate([np.full(len(part.batch), topics.index(part.topic)) for part in parts])[order],
        np.concatenate([part.partitions for part in parts])[order],
        keys,
        values,
        commit_ts[order],
        np.concatenate([np.full(len(part.batch), shapes[part.batch.version]) for part in parts])[order],
        order,
        event_hashes(commit_ts, (keys, values))[order],
        tuple(version.name for version in versions),
    )


def _concatenated(keys: Sequence[pa.Array | None], parts: Sequence[_Part]) -> pa.Array:
    """Concatenate the keys of several batches. In avro a batch of a table without a primary key has no keys, and gets
    nulls."""
    kind = pa.large_binary()
    return pa.concat_arrays(
        [pa.nulls(len(part.batch), kind) if one is None else one for one, part in zip(keys, parts, strict=True)]
    )
