"""The classes of the Kafka client library that a sink uses, so that a simulation can install its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True)
class KafkaClients:
    """Builds producers, consumers and admin clients from settings of librdkafka."""

    producer: Callable[..., Producer]
    consumer: Callable[..., Consumer]
    admin: Callable[..., AdminClient]


CONFLUENT = KafkaClients(Producer, Consumer, AdminClient)
