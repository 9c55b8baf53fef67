"""The brokers and the topic that a Kafka sink writes to, and the settings of its clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tistream_changefeed.sinks.kafka.security import PLAIN, KafkaSecurity

Delivery = Literal["exactly-once", "at-least-once"]
MESSAGE_OVERHEAD = 36  # bytes that a record adds to its key and value, as TiCDC counts
TOPIC_OVERHEAD = 128  # below the topic's own limit
PARTITIONS_DEFAULT = 3
MESSAGE_BYTES_DEFAULT = 10 << 20
BATCH_BYTES = 1_000_000  # below the limit of brokers and topics by default, 1 MiB
TRANSACTION_MS = 60_000


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """The brokers (`host:port`) and the topic of a sink URI, with its options. If `partition_num` is None, all
    partitions of an existing topic are used, and a new topic gets PARTITIONS_DEFAULT. `auto_create`: whether topics
    that do not exist are created."""

    brokers: tuple[str, ...]
    topic: str
    partition_num: int | None = None
    replication_factor: int = 1
    auto_create: bool = True
    max_message_bytes: int = MESSAGE_BYTES_DEFAULT
    compression: str = "none"
    delivery: Delivery = "exactly-once"
    security: KafkaSecurity = PLAIN

    def with_secrets(self, values: Mapping[str, str]) -> KafkaTarget:
        """The target with the values of secrets in place of references."""
        return replace(self, security=self.security.with_secrets(values))

    @property
    def progress_topic(self) -> str:
        """The compacted topic with the progress of the feeds that write to `topic`."""
        return f"{self.topic}-progress"

    @property
    def where(self) -> str:
        """The name of the target in errors."""
        return f"kafka://{','.join(self.brokers)}/{self.topic}"


Settings = dict[str, str | int | float | bool]


def common(target: KafkaTarget, client: str) -> Settings:
    """The librdkafka settings that all clients of the sink share. `client`: the client's id."""
    return {"bootstrap.servers": ",".join(target.brokers), "client.id": client, **target.security.settings}


def producer(target: KafkaTarget, name: str, batch_bytes: int = BATCH_BYTES) -> Settings:
    """The librdkafka settings of a producer. `name`: its transactional id and client id. `batch_bytes`: the topic's
    max.message.bytes, which the broker compares with whole batches, so that no batch is larger. The limit of a single
    message is never below BATCH_BYTES, because a DDL or the progress may be larger than the configured limit."""
    settings = common(target, name) | {
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": target.compression,
        "message.max.bytes": max(target.max_message_bytes + MESSAGE_OVERHEAD, BATCH_BYTES),
        "batch.size": min(batch_bytes, BATCH_BYTES),
        "linger.ms": 5,
        "queue.buffering.max.kbytes": 1 << 16,  # what is in flight to the broker; then producing waits
        "delivery.report.only.error": True,
    }
    if target.delivery == "exactly-once":
        settings |= {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS}
    return settings


def committed_reader(target: KafkaTarget, name: str) -> Settings:
    """The librdkafka settings of the consumer that reads the progress. `name`: its client id."""
    return common(target, name) | {
        "group.id": name,  # not joined: partitions are assigned
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }


def partitions_wanted(target: KafkaTarget, there: int) -> int:
    """How many partitions of a topic are written, if it has `there` partitions; 0 if it has too few."""
    wanted = target.partition_num or there
    return wanted if wanted <= there else 0


def message_limit(target: KafkaTarget, topic_limit: int) -> int:
    """The maximum size of key and value of one message, in bytes. `topic_limit` is max.message.bytes of the topic."""
    return min(target.max_message_bytes, topic_limit - TOPIC_OVERHEAD) - MESSAGE_OVERHEAD
