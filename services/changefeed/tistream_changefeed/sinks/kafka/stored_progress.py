"""Reads the progress of a feed's shards from the compacted topic in which it is stored."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tistream.clock import Clock
from tistream_changefeed.core import progress
from tistream_changefeed.core.failure import retry
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.shard import Order
from tistream_changefeed.sinks.kafka.clients import CONFLUENT, KafkaClients
from tistream_changefeed.sinks.kafka.faults import failure_of
from tistream_changefeed.sinks.kafka.producer_ids import shard_id
from tistream_changefeed.sinks.kafka.target import TRANSACTION_MS, KafkaTarget, committed_reader

log = logging.getLogger(__name__)

_POLL_S = 0.5


class StoredProgress:
    """The progress records of some shards of a feed. Each read continues where the previous one ended. Methods raise
    FeedFailed."""

    def __init__(
        self,
        target: KafkaTarget,
        order: Order,
        shards: Collection[int],
        clock: Clock,
        clients: KafkaClients = CONFLUENT,
    ) -> None:
        self._target, self._order, self._clock, self._clients = target, order, clock, clients
        self._keys = {progress.record_key(order.tenant, order.feed_id, shard): shard for shard in shards}
        self._next = 0  # everything before this offset was read
        self._newest: dict[int, bytes] = {}  # records that are not decoded yet: of many in a topic the last one counts
        self._found: dict[int, Progress] = {}

    def read(self, end: int, *, wait: bool = True) -> Mapping[int, Progress]:
        """Read the newest committed record of each shard below offset `end` of the progress topic. Returns them by
        shard.

        A shard without a record is left out. `end` is the end of the log, not of the committed part. So the call waits
        for open transactions of other feeds, because a record of a shard may lie after them. Without `wait` the call
        returns the records that can be read now, which may be older ones.
        """
        if self._next < end:
            self._read_on(end, wait)
        for key, shard in self._keys.items():
            if shard in self._newest:
                where = f"{self._target.progress_topic} {key.decode()}"
                self._found[shard] = progress.decode(self._order.tenant, self._newest[shard], where)
                del self._newest[shard]
        return self._found

    def _read_on(self, end: int, wait: bool) -> None:
        topic = self._target.progress_topic
        consumer = self._clients.consumer(committed_reader(self._target, shard_id(self._order)), logger=log)
        deadline_ms = self._clock.monotonic_ms() + 2 * TRANSACTION_MS
        try:
            consumer.assign([TopicPartition(topic, 0, self._next or OFFSET_BEGINNING)])
            while self._next < end:
                message = consumer.poll(_POLL_S)
                if message is None:
                    if self._clock.monotonic_ms() > deadline_ms:
                        reason = (
                            f"the progress was read up to offset {self._next} of {end}: another feed's transaction is "
                            "open"
                        )
                        raise retry("sink", topic, reason)
                elif self._take(message, topic) and not wait:
                    break
        except KafkaException as error:
            raise failure_of(error.args[0].name(), error.args[0].str(), topic) from error
        finally:
            consumer.close()

    def _take(self, message: Any, topic: str) -> bool:
        """Store the record in a message. Returns whether the message says that all committed records have been read;
        then it has no record."""
        error, offset = message.error(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise failure_of(error.name(), error.str(), topic)
        shard = None if error is not None else self._keys.get(message.key())
        if shard is not None:
            self._newest[shard] = message.value()
        self._next = max(self._next, 0 if offset is None else offset if error is not None else offset + 1)
        return error is not None
