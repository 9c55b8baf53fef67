"""Reads all partitions of some Kafka topics with librdkafka, from given offsets. Messages of aborted Kafka transactions
are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tistream.consume.reorder import Partition
from tistream.consume.source_url import SourceUrl
from tistream.errors import InvalidRequest, TiStreamError, Unavailable

METADATA_S = 15.0
POLL_MESSAGES = 500
_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)  # librdkafka's own codes


class TopicCut(TiStreamError):
    """Kafka has deleted the messages at which reading must continue, so events are lost to this reader."""

    code = "topic-cut"


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """One message: its partition, offset, key and value."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> str:
        """The message's topic, partition and offset, as text for errors."""
        return f"topic {self.partition[0]}, partition {self.partition[1]}, offset {self.offset}"

    @property
    def size(self) -> int:
        """The size of key and value, in bytes."""
        return len(self.key or b"") + len(self.value or b"")


class KafkaTopics:
    """A reader of all partitions of some topics. It joins no consumer group and commits no offsets to Kafka, because
    the target stores the offsets with the rows. Not thread-safe."""

    def __init__(self, source: SourceUrl, topics: Iterable[str]) -> None:
        """`topics` are read in addition to the one that `source` names."""
        self._brokers = source.brokers
        self._last_error = ""
        self._names = tuple(dict.fromkeys((source.topic, *topics)))
        self._consumer = Consumer(
            {
                **source.client,
                "bootstrap.servers": source.brokers,
                "group.id": "tistream-consume",  # librdkafka wants one; nothing is committed under it
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "client.id": "tistream-consume",
                "reconnect.backoff.ms": 500,
                "log_level": 0,  # `_remember` records the errors, so librdkafka need not log them
                "error_cb": self._remember,
            }
        )

    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of all topics, in order. Raises Unavailable; InvalidRequest if a topic does not exist."""
        found: list[Partition] = []
        for name in self._names:
            try:
                topic = self._consumer.list_topics(name, timeout=METADATA_S).topics[name]
            except KafkaException as error:
                raise self._unavailable(error) from error
            if topic.error is not None or not topic.partitions:
                raise InvalidRequest(f"Kafka has no topic {name}: {topic.error or 'no partition'}")
            found += [(name, number) for number in sorted(topic.partitions)]
        return tuple(found)

    def _remember(self, error: KafkaError) -> None:
        self._last_error = error.str()

    def _unavailable(self, error: KafkaException) -> Unavailable:
        reason = self._last_error or error.args[0].str()
        return Unavailable(f"Kafka at {self._brokers} does not answer: {reason}")

    def read_from(self, offsets: Mapping[Partition, int]) -> None:
        """Read each partition from its offset on; 0: from the oldest message that the topic has."""
        self._consumer.assign([TopicPartition(*one, offset or OFFSET_BEGINNING) for one, offset in offsets.items()])

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions until `resume`."""
        self._consumer.pause([TopicPartition(*one) for one in partitions])

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Continue to read paused partitions."""
        self._consumer.resume([TopicPartition(*one) for one in partitions])

    def poll(self, timeout_s: float) -> list[TopicMessage]:
        """The next messages, at most POLL_MESSAGES; empty if none arrives within `timeout_s`.

        Raises TopicCut; Unavailable for an error that librdkafka does not retry by itself.
        """
        try:
            return [one for message in self._consumer.consume(POLL_MESSAGES, timeout_s) for one in _record(message)]
        except KafkaException as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._consumer.close()


def _record(message: Message) -> list[TopicMessage]:
    error = message.error()
    if error is None:
        partition = (str(message.topic()), int(message.partition() or 0))
        key, value = message.key(), message.value()
        return [TopicMessage(partition, int(message.offset() or 0), _bytes(key), _bytes(value))]
    if error.code() in _GONE:
        raise TopicCut(
            f"topic {message.topic()}, partition {message.partition()} has no message at the offset from which reading "
            "continues: it was deleted by the topic's retention. Begin again with a new target, from a new changefeed"
        )
    if error.code() == KafkaError._PARTITION_EOF or error.retriable():
        return []
    raise Unavailable(f"Kafka refuses to be read: {error}")


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
