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
from tistream_cli.errors import CliError
from tistream_cli.platform.local_kafka import LocalKafka, jars

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
    known = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return sorted(known.partitions)


class CommittedReader:
    """Reads all partitions of a topic from the beginning with isolation.level=read_committed, as a careful consumer
    does. `seen` has the messages of each partition, in order."""

    def __init__(self, address: str, topic: str, isolation: str = "read_committed") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "committed-reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        eventually(lambda: partitions_of(address, topic))
        self._address, self._topic = address, topic
        self.seen: dict[int, list[Seen]] = {number: [] for number in partitions_of(address, topic)}
        self._reached = dict.fromkeys(self.seen, 0)
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in self.seen])

    def read(self, timeout: float = 1.0) -> int:
        """Read until every partition said that its end was reached, or nothing comes for `timeout` seconds; returns the
        number of new messages. What was said may be older than the call: `read_all` reads what is there now."""
        ended: set[int] = set()
        found = 0
        while len(ended) < len(self.seen):
            message = self._consumer.poll(timeout)
            if message is None:
                break
            if self._took(message):
                found += 1
                ended.discard(message.partition())
            else:
                ended.add(message.partition())
        return found

    def read_all(self) -> None:
        """Read all that is in the log now. Transactions that are open there are waited for: a broker acknowledges a
        commit before it lets readers see it."""
        latest = {TopicPartition(self._topic, number): OffsetSpec.latest() for number in self.seen}
        admin = AdminClient({"bootstrap.servers": self._address})  # without it no answer comes
        ends = {place.partition: found.result(PATIENCE_S).offset for place, found in admin.list_offsets(latest).items()}
        deadline = time.monotonic() + PATIENCE_S
        while any(self._reached[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"read up to {self._reached} of {ends}: a transaction is open"
            message = self._consumer.poll(1.0)
            if message is not None:
                self._took(message)

    def _took(self, message: Message) -> bool:
        """Whether it is a message, and not the note that a partition's end was reached."""
        number, offset, error = message.partition(), message.offset(), message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            self._reached[number] = max(self._reached[number], offset)
            return False
        self._reached[number] = offset + 1
        self.seen[number].append((offset, message.key(), message.value()))
        return True

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def committed(address: str, topic: str) -> dict[int, list[Seen]]:
    """All committed messages of a topic, by partition."""
    reader = CommittedReader(address, topic)
    try:
        reader.read_all()
        return reader.seen
    finally:
        reader.close()
