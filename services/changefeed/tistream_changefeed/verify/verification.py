"""Compares what a feed has written with the committed rows of its tenant. This module compares topics of Kafka,
tables.py the tables of a database, lake.py those of Iceberg, and files.py files. Topics are compared in a range of
commit_ts; on request, missing messages are written into another topic. To find out what the feed had to send, the rows
are encoded again with the present configuration. This is possible because messages depend only on the events and the
configuration (invariant 48)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tistream.clock import Clock
from tistream.errors import InvalidRequest, LimitReached, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.pool.versions.reader import Reader
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Place, Position, Scope
from tistream.read.scan import Budget
from tistream.schema.visible import fold
from tistream.wire.bulk.feed_verify import FeedVerification, VerifyFeed
from tistream_changefeed.config.iceberg_kind import SCHEME as LAKE_SCHEME
from tistream_changefeed.config.kinds import scheme_of
from tistream_changefeed.config.mysql_kind import SCHEMES
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.outgoing import Outgoing, SentMessage
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.hold.sink import Encoded
from tistream_changefeed.pipeline import FeedPipeline
from tistream_changefeed.sinks.allowed import check_hosts
from tistream_changefeed.sinks.kafka.clients import CONFLUENT, KafkaClients
from tistream_changefeed.sinks.kafka.feed_settings import RunnableFeed, parsed
from tistream_changefeed.sinks.kafka.producer_ids import repair_id
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics
from tistream_changefeed.sinks.mysql.mysql_feed import mysql_feed
from tistream_changefeed.sinks.storage.storage_feed import storage_feed
from tistream_changefeed.verify.comparison import Comparison
from tistream_changefeed.verify.file_events import reading as files_reading
from tistream_changefeed.verify.files import FileComparison
from tistream_changefeed.verify.kafka_range import KafkaRange
from tistream_changefeed.verify.key_bounds import KeyBounds, key_bounds
from tistream_changefeed.verify.message_heads import MessageHead, MessageReader, ResolvedHead, Unreadable, reading
from tistream_changefeed.verify.message_windows import MessageWindows, ShardWindows, shard_windows
from tistream_changefeed.verify.tables import TableComparison
from tistream_changefeed.verify.windows import only, verified_windows

LONGEST_MS = 8_000  # less than the API server waits for the answer
ANSWER_S = 4.0  # for each answer of the broker, and for the pool
EVENTS_MAX = 200_000  # of one comparison
FILE_SCHEMES = frozenset({"s3", "file"})  # of sink URIs
SKEW_MS = 600_000  # by which the broker's clock may be ahead of the upstream's


@dataclass(frozen=True, slots=True)
class Verifications:
    """Runs comparisons. `hosts`: the hosts to which feeds may connect. `file_urls`: the URLs below which they may put
    files. `view` returns the committed rows of a tenant. `longest_ms`: how long a comparison may take. `answer_s`: how
    many seconds it waits for one answer."""

    hosts: Sequence[str]
    keys: SecretKeys
    view: Callable[[TenantKey], Pool]
    clock: Clock
    budget: Budget
    reader: Reader
    clients: KafkaClients = CONFLUENT
    longest_ms: int = LONGEST_MS
    answer_s: float = ANSWER_S
    file_urls: Sequence[str] = ()

    def verify(self, ask: VerifyFeed) -> FeedVerification:
        """Run the comparison that `ask` describes, and return the differences. With `repair_topic`, this also writes
        the missing messages into that topic. Raises InvalidRequest, LimitReached, TargetNotAllowed, Gone; and
        Unavailable if the sink does not answer, or not in time."""
        deadline_ms = self.clock.monotonic_ms() + self.longest_ms
        tenant = TenantKey.parse(ask.cluster_id, ask.tenant_id)
        scheme = scheme_of(ask.sink_uri)
        others = scheme in SCHEMES or scheme in FILE_SCHEMES or scheme == LAKE_SCHEME
        if others and (ask.key_from, ask.key_to) != (None, None):
            raise InvalidRequest("key_from and key_to are for topics: leave them out", {"parameter": "key_from"})
        if scheme in SCHEMES:
            return self._tables(ask, tenant, deadline_ms)
        if scheme in FILE_SCHEMES:
            return self._files(ask, tenant, deadline_ms)
        if scheme == LAKE_SCHEME:
            return self._lake(ask, tenant, deadline_ms)
        feed = parsed(ask.sink_uri, ask.config, ask.skips)
        how = reading(feed.config.protocol)
        if isinstance(how, str):
            raise InvalidRequest(how)
        check_hosts(feed.hosts, self.hosts)
        target = feed.target.with_secrets(self.keys.values(tenant, ask.sink_uri, ask.config, ask.secrets))
        view = self._view_up_to(tenant, ask)
        return _answered(lambda: _Comparing(ask, tenant, feed, how, target, view, self, deadline_ms).result())

    def _tables(self, ask: VerifyFeed, tenant: TenantKey, deadline_ms: int) -> FeedVerification:
        if ask.repair_topic is not None:
            raise InvalidRequest("a database has no topic to repair: leave out repair_topic")
        feed = mysql_feed(ask.sink_uri, ask.config, ask.skips)
        check_hosts([feed.server.address], self.hosts)
        server = feed.server.with_secrets(self.keys.values(tenant, ask.sink_uri, ask.config, ask.secrets))
        of, view = (ask, tenant, feed, server), self._view(tenant)
        return _answered(TableComparison(*of, view, self.reader, self.budget, self.clock, deadline_ms).result)

    def _files(self, ask: VerifyFeed, tenant: TenantKey, deadline_ms: int) -> FeedVerification:
        if ask.repair_topic is not None:
            raise InvalidRequest(
                "files have no topic to repair: create a feed with this start_ts and end_ts into another path, which "
                "writes the rows again"
            )
        feed, allowed = storage_feed(ask.sink_uri, ask.config, ask.skips), Allowed(self.hosts, self.file_urls)
        how = files_reading(feed.config)
        if isinstance(how, str):
            raise InvalidRequest(how)
        feed.check_allowed(allowed)
        root = feed.root(self.keys.values(tenant, ask.sink_uri, ask.config, ask.secrets), allowed)
        view = self._view_up_to(tenant, ask)
        return _answered(
            FileComparison(ask, tenant, feed, how, root, view, self.budget, self.clock, deadline_ms).result
        )

    def _lake(self, ask: VerifyFeed, tenant: TenantKey, deadline_ms: int) -> FeedVerification:
        from tistream_changefeed.sinks.iceberg.lake_feed import lake_feed  # noqa: PLC0415  # takes 2 s to import
        from tistream_changefeed.verify.lake import LakeComparison  # noqa: PLC0415  # it too

        if ask.repair_topic is not None:
            raise InvalidRequest("a table in Iceberg has no topic to repair: leave out repair_topic")
        feed, allowed = lake_feed(ask.sink_uri, ask.config, ask.skips), Allowed(self.hosts, self.file_urls)
        feed.check_allowed(allowed)
        lake = feed.lake(self.keys.values(tenant, ask.sink_uri, ask.config, ask.secrets), allowed)
        of, view = (ask, tenant, feed, lake), self._view_up_to(tenant, ask)
        try:
            return _answered(LakeComparison(*of, view, self.budget, self.reader, self.clock, deadline_ms).result)
        finally:
            lake.close()

    def _view_up_to(self, tenant: TenantKey, ask: VerifyFeed) -> Pool:
        """The pool of a tenant, read up to the end of the range. Raises Gone, Unavailable."""
        view = self._view(tenant)
        view.check_served(ask.from_ts)
        if view.resolved_ts() < ask.to_ts and not view.wait_above(ask.to_ts - 1, int(self.answer_s * 1000)):
            raise Unavailable(f"this worker has not read the pool up to {ask.to_ts} yet")
        return view

    def _view(self, tenant: TenantKey) -> Pool:
        view = self.view(tenant)
        view.wait_fresh()
        view.check_known()
        return view


def _answered(compare: Callable[[], FeedVerification]) -> FeedVerification:
    """Compare. A failure of the sink becomes Unavailable or InvalidRequest."""
    try:
        return compare()
    except FeedFailed as error:
        if error.failure.kind == "retry" and not error.failure.refused:
            raise Unavailable(str(error)) from error
        raise InvalidRequest(str(error)) from error


@dataclass(slots=True)
class _Comparing:
    """One comparison of the topics of a feed with the tenant's rows."""

    ask: VerifyFeed
    tenant: TenantKey
    feed: RunnableFeed
    how: MessageReader
    target: KafkaTarget
    view: Pool
    by: Verifications
    deadline_ms: int
    counts: dict[str, int] = field(default_factory=dict)  # of partitions, by topic
    topics: Topics = field(init=False)
    bounds: KeyBounds | None = None

    def __post_init__(self) -> None:
        self.topics = Topics(self.target, "tistream-verify", self.by.answer_s, self.by.clients)

    def result(self) -> FeedVerification:
        """Compare the messages with the tenant's rows, and return the differences. Writes the missing messages if the
        request has a `repair_topic`. Raises FeedFailed, InvalidRequest, Unavailable if the deadline passes,
        LimitReached if the range has too many events."""
        found, self.bounds = Comparison(), self._bounds()
        self._partitions(self.target.topic)
        if self.ask.repair_topic in {self.target.progress_topic, f"{self.target.topic}-dead-letter"}:
            raise InvalidRequest(f"repair_topic {self.ask.repair_topic} is a topic of the feed: name another one")
        for _, one, head in self._wanted():
            found.wanted(one, head)
            self._check_room(found)
        if self.ask.repair_topic in self.counts:
            raise InvalidRequest(f"repair_topic {self.ask.repair_topic} is a topic of the feed: name another one")
        windows = MessageWindows(self._windows() if self.bounds is None else [])
        for one, head, offset in self._there():
            found.found(one, head, offset)
            windows.add(one, head)
            self._check_room(found)
        tables, differences = found.tables(), found.differences()
        of = only(self.ask.table, [(one.database, one.table) for one in tables])
        as_sent = windows.result(self.ask.from_ts, self.ask.to_ts, of)
        return FeedVerification(
            changefeed_id=self.ask.changefeed_id,
            from_ts=str(self.ask.from_ts),
            to_ts=str(self.ask.to_ts),
            equal=not differences and not as_sent.differences,
            tables=tables,
            differences=differences,
            windows=as_sent.count,
            window_differences=verified_windows(as_sent),
            repaired=0 if self.ask.repair_topic is None else self._repair(found, self.ask.repair_topic),
        )

    # ---- what the feed has to send

    def _encoded(self) -> Iterator[Encoded[Outgoing]]:
        pipeline = self._pipeline()
        scope = ChosenScope(self.tenant, choice=pipeline.tables)
        start, high, budget = Position(self.ask.from_ts), self.ask.to_ts, self.by.budget
        for batch in pipeline.scan(self.view.source, scope, start, high, budget).batches():
            if self.by.clock.monotonic_ms() > self.deadline_ms:
                raise Unavailable("the pool was not read in time: compare a shorter range")
            if batch.barrier is not None:
                raise InvalidRequest(f"a row at commit_ts {batch.barrier.commit_ts} cannot be decoded")
            rows = batch.events.chosen(np.flatnonzero(batch.events.place != int(Place.DDL)))
            if len(rows):
                yield pipeline.rows(rows, self._partitions)

    def _wanted(self) -> Iterator[tuple[tuple[Encoded[Outgoing], int], SentMessage, MessageHead]]:
        """Yield each event that the feed had to send, as ((the messages encoded together, its index in them), its
        message, its head)."""
        for encoded in self._encoded():
            for at, one in enumerate(encoded.messages.each()):
                head = self._head(one)
                if isinstance(head, MessageHead) and self._asked_for(head):
                    yield (encoded, at), one, head

    def _pipeline(self) -> FeedPipeline:
        pipeline = self.feed.pipeline(owner=f"{self.tenant}/{self.ask.changefeed_id}")
        list(pipeline.opened(self.ask.from_ts, lambda _: (), self._partitions))
        return pipeline

    def _partitions(self, topic: str) -> int:
        if topic not in self.counts:
            self.counts |= self.topics.planned([topic])
        return self.counts[topic]

    # ---- what is there

    def _there(self) -> Iterator[tuple[SentMessage, MessageHead, int]]:
        done: set[tuple[str, int]] = set()
        there = self.topics.there(self.counts)
        since_ms = self._since_ms()
        if not there:
            return
        for read in self._range().messages({topic: self.counts[topic] for topic in there}, since_ms, lambda: done):
            sent = read.sent
            for key, value in self._events(sent, read.offset):
                one = replace(sent, key=key, value=value)
                head = self._head(one)
                if isinstance(head, ResolvedHead):
                    if head.ts >= self.ask.to_ts:
                        done.add((sent.topic, sent.partition))
                elif head is not None and self._asked_for(head):
                    yield one, head, read.offset

    def _windows(self) -> list[ShardWindows]:
        """The windows of each shard that were committed since the range began. Empty without transactions, because
        messages may then be repeated."""
        topic = self.target.progress_topic
        if self.target.delivery != "exactly-once" or not self.topics.there([topic]):
            return []
        records = self._range().messages({topic: 1}, self._since_ms(), tuple, wait=False)
        return shard_windows((one.sent for one in records), self.tenant, self.ask.changefeed_id)

    def _range(self) -> KafkaRange:
        return KafkaRange(self.target, self.by.clock, self.deadline_ms, self.by.answer_s, self.by.clients)

    def _since_ms(self) -> int:
        """The Unix time in ms from which on messages of the range may have been written."""
        return max(0, physical_ms(self.ask.from_ts) - SKEW_MS)

    def _events(self, sent: SentMessage, offset: int) -> Sequence[tuple[bytes | None, bytes | None]]:
        try:
            return self.how.events((sent.key, sent.value))
        except Unreadable as error:
            raise InvalidRequest(f"{sent.topic}-{sent.partition}, offset {offset}: {error}") from error

    def _head(self, one: SentMessage) -> MessageHead | ResolvedHead | None:
        try:
            return self.how.head((one.key, one.value))
        except Unreadable as error:
            raise InvalidRequest(f"{one.topic}-{one.partition}: {error}") from error

    def _asked_for(self, head: MessageHead) -> bool:
        table = self.ask.table
        within = self.ask.from_ts < head.commit_ts <= self.ask.to_ts
        named = table is None or fold(f"{head.database}.{head.table}") == fold(table)
        return within and named and (self.bounds is None or self.bounds.has(head.key))

    def _bounds(self) -> KeyBounds | None:
        """The keys that are compared; None: all."""
        ask = self.ask
        if ask.key_from is None and ask.key_to is None:
            return None
        if not self.how.keyed:
            raise InvalidRequest("messages of this protocol do not mark the key: leave out key_from and key_to")
        for version in self.view.source.tables_at(ask.to_ts, Scope(self.tenant)):
            if fold(".".join(version.name)) == fold(ask.table or ""):
                return key_bounds(version, ask.key_from, ask.key_to, dated=self.how.dated, numbered=self.how.numbered)
        raise InvalidRequest(f"there is no table {ask.table} at {ask.to_ts}", {"parameter": "table"})

    # ---- repair

    def _repair(self, found: Comparison, topic: str) -> int:
        """Write the missing events into `topic`, in order and in one transaction, and resolved messages after them.
        Returns the number of events."""
        count = max(self.counts.values())
        target = replace(self.target, topic=topic, partition_num=count)
        Topics(target, "tistream-verify", self.by.answer_s, self.by.clients).partitions(topic)
        chosen: dict[int, tuple[Encoded[Outgoing], list[int]]] = {}
        for (encoded, at), one, _ in self._wanted():
            if found.take_missing(one):
                chosen.setdefault(id(encoded), (encoded, []))[1].append(at)
        messages = [
            replace(one, topic=topic)
            for encoded, at in chosen.values()
            for one in encoded.framed(encoded.messages.chosen(np.array(at, np.int64))).each()
        ]
        messages += self._pipeline().resolved(self.ask.to_ts, {topic: count})
        name = repair_id(self.tenant, self.ask.changefeed_id)
        KafkaRange(target, self.by.clock, self.deadline_ms, self.by.answer_s, self.by.clients).write(name, messages)
        return sum(len(at) for _, at in chosen.values())

    def _check_room(self, found: Comparison) -> None:
        if len(found) > EVENTS_MAX:
            raise LimitReached(f"the range has more than {EVENTS_MAX} events: compare a shorter one, or one table")
