"""The Kafka sink as of the release before dotted transactional ids: what holders of both releases do to each other."""

from __future__ import annotations

from collections.abc import Mapping

from tistream_changefeed.core import progress
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink
from tistream_changefeed.sinks.kafka.producer_ids import joined_id


class EarlierKafkaSink(KafkaSink):
    """It fences the joined id only, and refuses the version of records that it does not know."""

    def open(self) -> tuple[Progress | None, Mapping[str, Mapping[int, int]]]:
        order = self._order
        self._topics.partitions(self._target.topic)
        self._topics.ensure_progress()
        progress.taken_over(self._known(wait=False).get(order.shard), order.fence, order.start_ts, self.where)
        self._producer = self._new_producer(joined_id(order))
        self._init(self._producer)
        there = self._known(wait=True).get(order.shard)
        written = {topic: self._topics.partitions(topic) for topic in (there.topics if there is not None else ())}
        return there, self._topics.ends(written)

    def _known(self, *, wait: bool) -> Mapping[int, Progress]:
        stored = self._stored(wait=wait)
        if any(one.dotted_id for one in stored.values()):
            raise failed("sink", self.where, "the progress record has version 5; this program knows 1 to 4")
        return stored
