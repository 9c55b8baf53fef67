"""Writes the transactions of one shard into Kafka, exactly once or at least once.

Exactly once: messages and progress are one transaction of a producer whose transactional id is the shard's
(producer_ids.py). `open` fences the previous holder's producer, whose open transaction is aborted, before it reads the
progress. A sink that has failed is closed and replaced. It is not known whether its last commit succeeded, but the
progress in the new sink shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tistream.clock import Clock
from tistream.wire.bulk.changefeeds import SHARDS_MAX
from tistream_changefeed.core import progress
from tistream_changefeed.core.failure import failed, retry
from tistream_changefeed.core.outgoing import NOTHING, Outgoing, SentMessage
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.shard import Order, Transaction
from tistream_changefeed.protocols.messages import ClaimFile
from tistream_changefeed.sinks.claim_check import ClaimFiles
from tistream_changefeed.sinks.kafka import target as settings
from tistream_changefeed.sinks.kafka.clients import CONFLUENT, KafkaClients
from tistream_changefeed.sinks.kafka.faults import failure_of
from tistream_changefeed.sinks.kafka.producer_ids import fenced_ids, is_dotted, later_id, shard_id, written_id
from tistream_changefeed.sinks.kafka.stored_progress import StoredProgress
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics

log = logging.getLogger(__name__)

INIT_S = 60.0
COMMIT_S = 60.0
_FULL_S = 0.1  # pause while librdkafka's queue is full
_CLOSE_S = 2.0


class KafkaSink:
    """One holder's connection to Kafka. Every call may raise FeedFailed."""

    def __init__(
        self,
        target: KafkaTarget,
        order: Order,
        clock: Clock,
        clients: KafkaClients = CONFLUENT,
        claims: ClaimFiles | None = None,
    ) -> None:
        """`claims` writes the files of large messages; None if the feed has none."""
        self._target, self._order, self._clock, self._clients = target, order, clock, clients
        self._claims = claims
        self._topics = Topics(target, shard_id(order), clients=clients)
        others = [shard for shard in range(order.shards) if shard != order.shard]
        self._others = StoredProgress(target, order, others, clock, clients)
        self._producer: Producer | None = None
        self._later: Producer | None = None  # of the transactions after the first one, if its id is another one
        self._dotted = False
        self._errors: list[KafkaError] = []

    @property
    def where(self) -> str:
        """The name of the sink in errors."""
        return self._target.where

    def open(self) -> tuple[Progress | None, Mapping[str, Mapping[int, int]]]:
        """Implement Sink.open. Creates the topic of the sink URI and that of the progress records if they do
        not exist. Earlier holders are fenced only with exactly-once delivery. Raises FeedFailed, for example
        fenced if a newer holder has written progress."""
        self._topics.partitions(self._target.topic)
        self._topics.ensure_progress()
        # A holder whose shard was given away does not disturb the new one by fencing it. The transaction that a killed
        # holder has left open is not waited for: only the fencing ends it before its timeout
        stored = self._stored(wait=self._target.delivery != "exactly-once")
        progress.taken_over(stored.get(self._order.shard), self._order.fence, self._order.start_ts, self.where)
        order, before = self._order, stored.get(self._order.shard)
        exact = self._target.delivery == "exactly-once"
        names = fenced_ids(order, before) if exact else (shard_id(order),)
        producers = {name: self._new_producer(name) for name in names}
        if exact:
            for one in producers.values():
                self._init(one)
            stored = self._stored(wait=True)
        progress.check_revision(stored.values(), order.fence, order.revision, order.shards, self.where)
        there = stored.get(self._order.shard)
        self._take(producers, there)
        moved = self._order.revision.moved
        if self._order.cutting:
            self._topics.keep(self._written())
        elif moved is not None and moved.cut:
            for topic in self._written():  # this shard sends resolved messages to its partitions of all of them
                self._topics.partitions(topic)
        written = {topic: self._topics.partitions(topic) for topic in (there.topics if there is not None else ())}
        ends = self._topics.ends(written)
        found_ends = {
            topic: {number: end for number, end in ends[topic].items() if number < count}
            for topic, count in written.items()
        }
        if there is None:
            return there, found_ends
        return there, progress.kept_ends(there, self._topics.ids(written), found_ends)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic that are written. Creates the topic if it does not
        exist."""
        return self._topics.partitions(topic)

    def topics(self) -> Mapping[str, int]:
        """The topics that resolved messages go to, with their numbers of partitions."""
        return self._topics.known()

    def shards(self) -> Mapping[int, Progress]:
        """Implement Sink.shards: the progress of the other shards."""
        return self._others.read(self._progress_end(), wait=False)

    def keep(self, claims: Sequence[ClaimFile]) -> None:
        """Write the claim-check files to which messages refer, before the messages are written."""
        if claims:
            assert self._claims is not None, "only claim-check makes such files"
            self._claims.put(claims)

    @property
    def waits(self) -> bool:
        """Implement Sink.waits: each transaction is durable at once."""
        return False

    @property
    def held_by(self) -> None:
        """Implement Sink.held_by: an error says what a call waits for."""

    def write(self, transaction: Transaction) -> bool:
        """Implement Sink.write. Returns True. With exactly-once delivery, all of a transaction becomes durable,
        or nothing. With at-least-once delivery, the progress is written after the messages; after a failure,
        some messages may be there without it."""
        rows = cast(Outgoing, transaction.rows)  # no other payloads and marks are made for a Kafka feed
        marks = cast(tuple[SentMessage, ...], transaction.marks)
        self._check_sizes(rows)
        producer, known = self._producer, self._topics.known()
        assert producer is not None
        stored = SentMessage(
            self._target.progress_topic,
            0,
            progress.record_key(self._order.tenant, self._order.feed_id, self._order.shard),
            progress.encode(
                self._order.tenant,
                replace(transaction.progress.knowing(known, self._topics.ids(known)), dotted_id=self._dotted),
                transaction.window,
            ),
        )
        try:
            if self._target.delivery == "exactly-once":
                producer.begin_transaction()
                self._produce(producer, rows, (*marks, stored))
                self._commit(producer)
                if self._later is not None:
                    self._producer, self._later = self._later, None
            else:
                self._produce(producer, rows, marks)
                self._flush(producer)
                self._produce(producer, NOTHING, (stored,))
                self._flush(producer)
        except KafkaException as error:
            self._raise_delivery()
            raise failure_of(error.args[0].name(), error.args[0].str(), self.where) from error
        return True

    def close(self) -> None:
        """Close the connections. An open transaction is aborted by this call, or by the next holder when it opens its
        sink."""
        producer, self._producer, self._later = self._producer, None, None
        if producer is None:
            return
        producer.purge()
        if self._target.delivery == "exactly-once":
            try:
                producer.abort_transaction(_CLOSE_S)
            except KafkaException as error:
                log.debug("no transaction was aborted", extra={"shard": self._order.name, "error": str(error)})
        producer.flush(_CLOSE_S)

    def _new_producer(self, name: str) -> Producer:
        found = settings.producer(self._target, name, self._topics.limit(self._target.topic))
        conf: dict[str, Any] = {**found, "on_delivery": self._delivered}
        return self._clients.producer(conf, logger=log)

    def _take(self, producers: Mapping[str, Producer], there: Progress | None) -> None:
        """Choose the producers of the first transaction and of later ones. `producers`: those whose ids this sink has
        fenced, by id. `there`: the progress that was read after that."""
        order = self._order
        if self._target.delivery != "exactly-once":  # no id is fenced, and the records say of it what they said
            self._producer = producers[shard_id(order)]
            self._dotted = there is not None and there.fence.generation == order.fence.generation and there.dotted_id
            return
        first, later = written_id(order, there), later_id(order, there)
        if not {first, later} <= producers.keys():
            raise retry("sink", self.where, "the progress was deleted while the sink was opened")
        self._producer, self._dotted = producers[first], is_dotted(order, there)
        self._later = None if later == first else producers[later]

    def _stored(self, *, wait: bool) -> Mapping[int, Progress]:
        """Read the newest progress record of each shard, by number; a shard without a record is left out. Records of a
        removed feed that had the same id are returned too: they have a lower generation, by which the caller must
        recognise them. `wait`: as in StoredProgress.read."""
        stored = StoredProgress(self._target, self._order, range(SHARDS_MAX), self._clock, self._clients)
        return stored.read(self._progress_end(), wait=wait)

    def _written(self) -> dict[str, int]:
        """The topics that any shard of the feed has written, with their numbers of partitions."""
        counts: dict[str, int] = {}
        for found in self._stored(wait=True).values():
            if found.fence.generation == self._order.fence.generation:
                counts |= {topic: max(len(written), counts.get(topic, 0)) for topic, written in found.topics.items()}
        return {topic: count for topic, count in counts.items() if count}

    def _progress_end(self) -> int:
        name = self._target.progress_topic
        return self._topics.ends([name])[name].get(0, 0)

    def _init(self, producer: Producer) -> None:
        deadline_ms = self._clock.monotonic_ms() + int(INIT_S * 1000)
        while True:
            try:
                producer.init_transactions(INIT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._clock.monotonic_ms() > deadline_ms:
                    raise failure_of(error.args[0].name(), error.args[0].str(), self.where) from error

    def _commit(self, producer: Producer) -> None:
        deadline_ms = self._clock.monotonic_ms() + int(COMMIT_S * 1000)
        while True:
            try:
                producer.commit_transaction(COMMIT_S)
                return
            except KafkaException as error:  # the same commit may be called again, until it is decided
                if not error.args[0].retriable() or self._clock.monotonic_ms() > deadline_ms:
                    raise

    def _produce(self, producer: Producer, rows: Outgoing, marks: Iterable[SentMessage]) -> None:
        for run in rows.runs():
            for key, value in zip(run.keys, run.values, strict=True):
                try:
                    producer.produce(run.topic, value, key, run.partition)
                except BufferError:
                    self._again(producer, SentMessage(run.topic, run.partition, key, value))
        for one in marks:
            try:
                producer.produce(one.topic, one.value, one.key, one.partition)
            except BufferError:
                self._again(producer, one)

    def _again(self, producer: Producer, one: SentMessage) -> None:
        """Wait until librdkafka's queue has room, and produce the message. The queue is full if the broker is slower
        than the feed."""
        while True:
            producer.poll(_FULL_S)
            self._raise_delivery()
            with suppress(BufferError):
                producer.produce(one.topic, one.value, one.key, one.partition)
                return

    def _flush(self, producer: Producer) -> None:
        left = producer.flush(COMMIT_S)
        self._raise_delivery()
        if left:
            raise retry("sink", self.where, f"the broker has not taken {left} messages in {COMMIT_S:.0f} s")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _raise_delivery(self) -> None:
        if self._errors:
            error = self._errors[0]
            raise failure_of(error.name(), error.str(), self.where)

    def _check_sizes(self, rows: Outgoing) -> None:
        if not len(rows):
            return
        sizes = rows.sizes
        at = int(sizes.argmax())
        topic = rows.topics[int(rows.topic[at])]
        limit = self._topics.limit(topic)
        if int(sizes[at]) > limit:
            reason = (
                f"a message of {int(sizes[at])} bytes at commit_ts {int(rows.commit_ts[at])} is larger than {limit}: "
                "raise max-message-bytes of the sink URI and max.message.bytes of the topic"
            )
            raise failed("sink", f"{topic}-{int(rows.partition[at])}", reason)
