"""Reads a shard's progress from the compacted topic."""

from __future__ import annotations

import logging

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tistream.clock import Clock
from tistream_changefeed.core import progress
from tistream_changefeed.core.failure import retry
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.shard import Order
from tistream_changefeed.sinks.kafka.clients import CONFLUENT, KafkaClients
from tistream_changefeed.sinks.kafka.faults import failure_of
from tistream_changefeed.sinks.kafka.target import TRANSACTION_MS, KafkaTarget, committed_reader

log = logging.getLogger(__name__)

_POLL_S = 0.5


def stored_progress(
    target: KafkaTarget,
    order: Order,
    end: int,
    clock: Clock,
    clients: KafkaClients = CONFLUENT,
    *,
    wait: bool = True,
) -> Progress | None:
    """The newest committed record of a shard below offset `end` of the progress topic; None without one.

    `end` is the end of the log, not of what is committed: transactions of other feeds that are open there are waited
    for, because a record of this shard may lie behind them. Without `wait` the answer is what can be read now, which
    may be an earlier record. Raises FeedFailed.
    """
    topic, key = target.progress_topic, progress.record_key(order.tenant, order.feed_id, order.shard)
    consumer = clients.consumer(committed_reader(target, order), logger=log)
    found: bytes | None = None
    deadline_ms = clock.monotonic_ms() + 2 * TRANSACTION_MS
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        reached = 0
        while reached < end:
            message = consumer.poll(_POLL_S)
            if message is None:
                if clock.monotonic_ms() > deadline_ms:
                    reason = (
                        f"the progress was read up to offset {reached} of {end}: another feed's transaction is open"
                    )
                    raise retry("sink", topic, reason)
                continue
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise failure_of(error.name(), error.str(), topic)
            if error is None and message.key() == key:
                found = message.value()
            if error is not None and not wait:
                break
            reached = max(reached, 0 if offset is None else offset if error is not None else offset + 1)
    except KafkaException as error:
        raise failure_of(error.args[0].name(), error.args[0].str(), topic) from error
    finally:
        consumer.close()
    return None if found is None else progress.decode(order.tenant, found, f"{topic} {key.decode()}")
