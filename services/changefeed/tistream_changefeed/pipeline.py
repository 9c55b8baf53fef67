"""Turns events into the messages of a feed: split, sent to partitions, encoded. Pure: a function of the events and the
feed's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tistream.read.events import Events
from tistream.schema.ddl_event import DdlEvent
from tistream_changefeed.core.outgoing import NOTHING, Outgoing, Sent
from tistream_changefeed.core.shard import everywhere, to_partitions
from tistream_changefeed.dispatch.partition_rule import PartitionRule
from tistream_changefeed.hold.sink import Encoded, PartitionsOf
from tistream_changefeed.protocols.messages import Encoder, Messages
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import Splitting, split
from tistream_changefeed.rows.window import raw_changes


@dataclass(frozen=True, slots=True)
class FeedPipeline:
    """The pipeline of a feed that writes to one topic. `numbered`: ENUM and SET are read as numbers."""

    encoder: Encoder
    topic: str
    rule: PartitionRule
    splitting: Splitting
    numbered: bool

    def rows(self, events: Events, partitions: PartitionsOf) -> Encoded:
        """The messages of row events, in the order in which they are sent."""
        count = partitions(self.topic)
        batches = split(raw_changes(events), self.splitting).rows
        encoded = [(batch, self.encoder.rows(batch), self.rule.partitions(batch, count)) for batch in batches]
        return Encoded(_in_order(encoded, self.topic), lambda part: part)

    def ddl(self, event: DdlEvent, partitions: PartitionsOf) -> tuple[Sent, ...]:
        """The messages of a DDL, one for each partition that gets it."""
        message = self.encoder.ddl(event)
        return () if message is None else to_partitions(message, {self.topic: partitions(self.topic)}, self.topic)

    def resolved(self, ts: int, topics: Mapping[str, int]) -> tuple[Sent, ...]:
        """A resolved message for every partition of these topics; none if the protocol has no such message."""
        message = self.encoder.resolved(ts)
        return () if message is None else everywhere(message, topics)


def _in_order(encoded: list[tuple[RowBatch, Messages, np.ndarray]], topic: str) -> Outgoing:
    if not encoded:
        return NOTHING
    order = np.argsort(np.concatenate([batch.at for batch, _, _ in encoded]), kind="stable")
    taken = pa.array(order)
    keys = [messages.keys for _, messages, _ in encoded]
    return Outgoing(
        (topic,),
        np.zeros(len(order), np.int64),
        np.concatenate([partitions for _, _, partitions in encoded])[order],
        None if keys[0] is None else pa.concat_arrays(keys).take(taken),
        pa.concat_arrays([messages.values for _, messages, _ in encoded]).take(taken),
        np.concatenate([batch.commit_ts for batch, _, _ in encoded])[order],
    )
