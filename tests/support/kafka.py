"""A real Kafka 4 on 127.0.0.1, of jars that Maven gets once, and what a reader of committed messages sees in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from support.kept import NotHad, alone, packaged
from support.not_run import not_run
from support.platform import _die_with_us, free_port
from support.waiting import PATIENCE_S, eventually
from tistream_cli.platform.local_kafka import LocalKafka, jars
from tistream_client.cli.errors import CliError

Seen = tuple[int, bytes | None, bytes | None]
"""(offset, key, value) of a message."""


@contextmanager
def kafka(directory: Path, options: tuple[str, ...] = (), ports: tuple[int, int] | None = None) -> Iterator[LocalKafka]:
    """A broker for a `with` block; `ports`: its own and its controller's. Where none can be had, the test is reported
    as not run."""
    try:
        with alone("kafka"):
            packaged("maven", "mvn")  # where root may install it; else `jars` says that it is missing
            jars()
    except (CliError, NotHad) as error:
        not_run(str(error))
    broker = LocalKafka(directory, *(ports or (free_port(), free_port())), options, _die_with_us)
    try:
        yield broker.start()
    finally:
        broker.kill()


USER, PASSWORD = "app", "hunter2-of-the-broker"


def with_login(plain: int, controller: int, sasl: int) -> tuple[str, ...]:
    """Options of a broker that has a listener at the port `sasl` for USER with PASSWORD, beside its plain one."""
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return (
        f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SASL://127.0.0.1:{sasl}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl.plain.sasl.jaas.config={login}",
    )


def partitions_of(address: str, topic: str) -> list[int]:
    """The partitions of a topic; empty if it does not exist."""
    return _partitions(AdminClient({"bootstrap.servers": address}), topic)


def _partitions(admin: AdminClient, topic: str) -> list[int]:
    return sorted(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)


class CommittedReader:
    """Reads topics from the beginning, all partitions, with isolation.level=read_committed, as a careful consumer does.

    Neither that a partition's end was reached, nor that nothing comes, means that all was read: such a note may lie in
    the queue since before the last transactions, and while a transaction of a killed producer is open, the end is
    before it. Of 30 readers that were open while producers were killed, and stopped at such notes, 28 lacked the last
    messages, on a real broker; none lacked any that had read to the end of the log.
    """

    def __init__(self, address: str, *topics: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "committed-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        self._admin = AdminClient({"bootstrap.servers": address})  # answers come only while it is kept
        self._topics = topics
        places: list[tuple[str, int]] = []
        for topic in topics:
            eventually(lambda topic=topic: _partitions(self._admin, topic))
            places += [(topic, number) for number in _partitions(self._admin, topic)]
        self._seen: dict[tuple[str, int], list[Seen]] = {place: [] for place in places}
        self._reached = dict.fromkeys(places, 0)
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])

    @property
    def seen(self) -> dict[int, list[Seen]]:
        """The messages of each partition, in order, if it reads one topic."""
        [topic] = self._topics
        return self.seen_of(topic)

    def seen_of(self, topic: str) -> dict[int, list[Seen]]:
        """The messages of each partition of one of the topics, in order."""
        return {number: messages for (of, number), messages in self._seen.items() if of == topic}

    def read(self, timeout: float = 1.0) -> int:
        """Read until every partition said that its end was reached, or nothing comes for `timeout` seconds; returns the
        number of new messages. What was said may be older than the call: `read_all` reads what is there now."""
        ended: set[tuple[str, int]] = set()
        found = 0
        while len(ended) < len(self._seen):
            message = self._consumer.poll(timeout)
            if message is None:
                break
            if self._took(message):
                found += 1
                ended.discard(_place(message))
            else:
                ended.add(_place(message))
        return found

    def read_all(self) -> None:
        """Read all that is in the log now. Transactions that are open there are waited for: a broker acknowledges a
        commit before it lets readers see it."""
        answers = self._admin.list_offsets({TopicPartition(*place): OffsetSpec.latest() for place in self._seen})
        ends = {(of.topic, of.partition): found.result(PATIENCE_S).offset for of, found in answers.items()}
        deadline = time.monotonic() + PATIENCE_S
        while any(self._reached[place] < end for place, end in ends.items()):
            assert time.monotonic() < deadline, f"read up to {self._reached} of {ends}: a transaction is open"
            message = self._consumer.poll(1.0)
            if message is not None:
                self._took(message)

    def _took(self, message: Message) -> bool:
        """Whether it is a message, and not the note that a partition's end was reached."""
        place, offset, error = _place(message), message.offset(), message.error()
        assert offset is not None
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            self._reached[place] = max(self._reached[place], offset)
            return False
        self._reached[place] = offset + 1
        self._seen[place].append((offset, message.key(), message.value()))
        return True

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def _place(message: Message) -> tuple[str, int]:
    topic, number = message.topic(), message.partition()
    assert topic is not None
    assert number is not None
    return topic, number


def committed(address: str, topic: str) -> dict[int, list[Seen]]:
    """All committed messages of a topic, by partition."""
    return committed_of(address, topic)[topic]


def committed_of(address: str, *topics: str) -> dict[str, dict[int, list[Seen]]]:
    """The same of several topics, by topic: one consumer reads them all."""
    reader = CommittedReader(address, *topics)
    try:
        reader.read_all()
        return {topic: reader.seen_of(topic) for topic in topics}
    finally:
        reader.close()
