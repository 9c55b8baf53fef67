"""Reads the committed messages of topics from a time on, and writes missing messages into another topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tistream.clock import Clock
from tistream_changefeed.core.failure import retry
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.sinks.kafka.clients import CONFLUENT, KafkaClients
from tistream_changefeed.sinks.kafka.faults import failure_of
from tistream_changefeed.sinks.kafka.target import KafkaTarget, common

log = logging.getLogger(__name__)

_POLL_S = 0.5
_MESSAGES = 500
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A committed message and its offset."""

    sent: SentMessage
    offset: int


class KafkaRange:
    """Reads and writes messages for one comparison. Methods raise FeedFailed. `deadline_ms`: when reading is given up,
    in monotonic ms. `answer_s`: how many seconds to wait for each answer of the broker."""

    def __init__(
        self,
        target: KafkaTarget,
        clock: Clock,
        deadline_ms: int,
        answer_s: float,
        clients: KafkaClients = CONFLUENT,
    ) -> None:
        self._target, self._clock, self._deadline_ms = target, clock, deadline_ms
        self._answer_s, self._clients = answer_s, clients

    def messages(
        self, topics: Mapping[str, int], from_ms: int, done: Callable[[], Collection[Place]], *, wait: bool = True
    ) -> Iterator[ReadMessage]:
        """Yield the messages of the topics that were written at or after `from_ms` (Unix ms), up to the present
        end of each partition. `topics`: numbers of partitions. `done` is called after each batch of up to
        _MESSAGES messages; it returns the partitions of which no more messages are needed. `wait`: whether to
        wait until open transactions end."""
        consumer = self._clients.consumer(self._settings, logger=log)
        try:
            yield from self._read(consumer, topics, from_ms, done, wait)
        except KafkaException as error:
            raise failure_of(error.args[0].name(), error.args[0].str(), self._target.where) from error
        finally:
            consumer.close()

    def _read(
        self,
        consumer: Consumer,
        topics: Mapping[str, int],
        from_ms: int,
        done: Callable[[], Collection[Place]],
        wait: bool,
    ) -> Iterator[ReadMessage]:
        places = [(topic, number) for topic, count in sorted(topics.items()) for number in range(count)]
        found = consumer.offsets_for_times([TopicPartition(*one, from_ms) for one in places], timeout=self._answer_s)
        starts = {(one.topic, one.partition): one.offset for one in found}
        ends = {
            one: consumer.get_watermark_offsets(TopicPartition(*one), timeout=self._answer_s)[1] for one in places
        }  # of the log: an open transaction is waited for
        left = {one for one in places if 0 <= starts[one] < ends[one] or starts[one] == OFFSET_BEGINNING}
        consumer.assign([TopicPartition(*one, starts[one]) for one in sorted(left)])
        while left:
            if self._clock.monotonic_ms() > self._deadline_ms:
                where = ", ".join(f"{topic}-{number}" for topic, number in sorted(left)[:3])
                raise retry("sink", where, "the topics were not read in time: compare a shorter range")
            for message in consumer.consume(_MESSAGES, _POLL_S):
                place, offset = (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
                error = message.error()
                if error is None:
                    yield ReadMessage(SentMessage(*place, _bytes(message.key()), _bytes(message.value())), offset)
                    offset += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise failure_of(error.name(), error.str(), place[0])
                if offset >= ends[place] or (error is not None and not wait):
                    left.discard(place)
            left -= set(done())

    def write(self, client: str, messages: Sequence[SentMessage]) -> None:
        """Write messages in one transaction. `client` is the client id and the transactional id."""
        producer = self._clients.producer(
            {
                **common(self._target, client),
                "transactional.id": client,
                "message.max.bytes": self._target.max_message_bytes + 1_000,
                "compression.type": self._target.compression,
            },
            logger=log,
        )
        try:
            producer.init_transactions(self._answer_s)
            producer.begin_transaction()
            for one in messages:
                while True:
                    try:
                        producer.produce(one.topic, one.value, one.key, one.partition)
                        break
                    except BufferError:
                        producer.poll(_POLL_S)
            producer.commit_transaction(self._answer_s)
        except KafkaException as error:
            raise failure_of(error.args[0].name(), error.args[0].str(), self._target.where) from error

    @property
    def _settings(self) -> dict[str, object]:
        return {
            **common(self._target, "tistream-verify"),
            "group.id": "tistream-verify",  # not joined: partitions are assigned
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
