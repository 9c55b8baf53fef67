"""A real Kafka 4 on 127.0.0.1, of jars that Maven gets once, and what a reader of committed messages sees in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

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
        self.seen: dict[int, list[Seen]] = {number: [] for number in partitions_of(address, topic)}
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in self.seen])

    def read(self, timeout: float = 1.0) -> int:
        """Read until every partition's end was reached, or nothing comes for `timeout` seconds; returns the number of
        new messages."""
        ended: set[int] = set()
        found = 0
        while len(ended) < len(self.seen):
            message = self._consumer.poll(timeout)
            if message is None:
                break
            number, offset = message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(number)
                continue
            ended.discard(number)
            self.seen[number].append((offset, message.key(), message.value()))
            found += 1
        return found

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def committed(address: str, topic: str) -> dict[int, list[Seen]]:
    """All committed messages of a topic, by partition."""
    reader = CommittedReader(address, topic)
    try:
        reader.read(PATIENCE_S)
        return reader.seen
    finally:
        reader.close()
