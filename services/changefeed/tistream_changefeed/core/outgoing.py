"""Encoded messages on their way to a sink. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages of rows, in the order in which they are sent. Arrays have one element for each message.

    `topic` is an index into `topics`. Keys and values are large_binary; `keys` None: every key is null. A message that
    holds several events has the highest of their commit_ts. `shape`: a number of the table version, of protocols that
    send the schemas of tables; None: of others.
    """

    topics: tuple[str, ...]
    topic: Int64s
    partition: Int64s
    keys: pa.Array | None
    values: pa.Array
    commit_ts: Int64s
    shape: Int64s | None = None

    def __len__(self) -> int:
        return len(self.commit_ts)

    @property
    def sizes(self) -> Int64s:
        """Bytes of key and value of each message."""
        return _lengths(self.values) if self.keys is None else _lengths(self.values) + _lengths(self.keys)

    def between(self, start: int, end: int) -> Outgoing:
        """Messages `start` (inclusive) to `end` (exclusive)."""
        keys = None if self.keys is None else self.keys.slice(start, end - start)
        return Outgoing(
            self.topics,
            self.topic[start:end],
            self.partition[start:end],
            keys,
            self.values.slice(start, end - start),
            self.commit_ts[start:end],
            None if self.shape is None else self.shape[start:end],
        )

    def each(self) -> Iterator[Sent]:
        """The messages one by one, as a client of a broker takes them."""
        keys = [None] * len(self) if self.keys is None else self.keys.to_pylist()
        places = zip(self.topic.tolist(), self.partition.tolist(), keys, self.values.to_pylist(), strict=True)
        for topic, partition, key, value in places:
            yield Sent(self.topics[topic], partition, key, value)


@dataclass(frozen=True, slots=True)
class Sent:
    """One message with its place."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


def _lengths(array: pa.Array) -> Int64s:
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets)


NOTHING = Outgoing(
    (), np.empty(0, np.int64), np.empty(0, np.int64), None, pa.array([], pa.large_binary()), np.empty(0, np.int64)
)
