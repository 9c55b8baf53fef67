"""The data that a sink writes for a window of events: for Kafka, encoded messages with their topics and partitions.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s, UInt64s
from tistream.schema.visible import Name
from tistream_changefeed.fingerprints.fingerprint import Fingerprints, by_table


class Payload(Protocol):
    """The data of a window's row events that a sink writes: messages, statements or files. Each element stands for one
    event or several. The elements are in the order of sending."""

    @property
    def commit_ts(self) -> Int64s:
        """The commit_ts of each element, ascending in order of sending."""

    @property
    def sizes(self) -> Int64s:
        """The size of each element, in bytes."""

    def __len__(self) -> int: ...

    def between(self, start: int, end: int) -> Self:
        """The elements from `start` (inclusive) to `end` (exclusive)."""

    def contents(self) -> Iterator[Content]:
        """Yield the encoded messages' values. The progress record counts them and has their CRC-32. Yields nothing for
        a sink that does not write messages."""

    def fingerprints(self) -> Fingerprints:
        """The Fingerprint of each table's events. Empty if an element may hold several events, or if the sink's tables
        are compared row by row."""


class Mark(Protocol):
    """Something that a sink writes and that is not a row event: a DDL, a resolved message, a dead letter."""

    @property
    def size(self) -> int:
        """The bytes that the sink writes for this mark."""

    @property
    def content(self) -> Content | None:
        """The mark's value with its topic and partition, for the counts and checksums in the progress; None if the mark
        is not a message."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages of row events, as columns in the order in which they are sent. Arrays have one element for each
    message. `topic` is an index into `topics`. `keys` and `values` are large_binary arrays; with `keys` None, every
    key is null. `at`: for each message, its row in `keys` and `values`, which may also have rows of other messages;
    None: message i has row i. A message that holds several events has the highest of their commit_ts. `shape`: for
    each message, the number of its event's table version, which is an index into `names`; None if a message may
    hold several events or a table's schema. `hashes`: the hash of each event; None if a message may hold several
    events. `names`: the name of the table of each table version."""

    topics: tuple[str, ...]
    topic: Int64s
    partition: Int64s
    keys: pa.Array | None
    values: pa.Array
    commit_ts: Int64s
    shape: Int64s | None = None
    at: Int64s | None = None
    hashes: UInt64s | None = None
    names: tuple[Name, ...] = ()

    def __len__(self) -> int:
        return len(self.commit_ts)

    @property
    def sizes(self) -> Int64s:
        """The bytes of key and value together, for each message."""
        sizes = _lengths(self.values) if self.keys is None else _lengths(self.values) + _lengths(self.keys)
        return sizes if self.at is None else sizes[self.at]

    @property
    def places(self) -> Int64s:
        """For each message, the row of `keys` and `values` that holds it: `at`, or 0, 1, 2, … if `at` is None."""
        return np.arange(len(self)) if self.at is None else self.at

    def between(self, start: int, end: int) -> Outgoing:
        """The messages from `start` (inclusive) to `end` (exclusive)."""
        keys, values, at = self.keys, self.values, self.at
        if at is None:
            keys = None if keys is None else keys.slice(start, end - start)
            values = values.slice(start, end - start)
        else:
            at = at[start:end]
        return Outgoing(
            self.topics,
            self.topic[start:end],
            self.partition[start:end],
            keys,
            values,
            self.commit_ts[start:end],
            None if self.shape is None else self.shape[start:end],
            at,
            None if self.hashes is None else self.hashes[start:end],
            self.names,
        )

    def fingerprints(self) -> Fingerprints:
        """The Fingerprint of each table's events; empty if `hashes` or `shape` is None."""
        if self.hashes is None or self.shape is None:
            return {}
        return by_table(self.hashes, self.shape, self.names)

    def in_order(self) -> Outgoing:
        """The same messages, with keys and values copied into the order of sending, so that `at` is None."""
        if self.at is None:
            return self
        at = pa.array(self.at)
        keys = None if self.keys is None else self.keys.take(at)
        return replace(self, keys=keys, values=self.values.take(at), at=None)

    def by_partition(self) -> Outgoing:
        """The same messages, sorted by topic and partition. Messages of one partition keep their order."""
        return self.chosen(np.lexsort((self.partition, self.topic)))  # it is stable

    def chosen(self, index: Int64s) -> Outgoing:
        """The messages with the indexes in `index`, in the order of `index`."""
        return replace(
            self,
            topic=self.topic[index],
            partition=self.partition[index],
            commit_ts=self.commit_ts[index],
            shape=None if self.shape is None else self.shape[index],
            at=self.places[index],
            hashes=None if self.hashes is None else self.hashes[index],
        ).in_order()

    def each(self) -> Iterator[SentMessage]:
        """Yield the messages one by one, in the order of sending."""
        for run in self.runs():
            for key, value in zip(run.keys, run.values, strict=True):
                yield SentMessage(run.topic, run.partition, key, value)

    def runs(self) -> Iterator[Run]:
        """The messages, grouped into runs. A run has consecutive messages of one partition."""
        one = self.in_order()
        keys = None if one.keys is None else one.keys.to_pylist()
        values = one.values.to_pylist()
        for topic, partition, start, end in one._runs():
            yield Run(topic, partition, [None] * (end - start) if keys is None else keys[start:end], values[start:end])

    def contents(self) -> Iterator[Content]:
        """Yield the values of each run of consecutive messages of one partition as one byte range. It makes no object
        for each message. The caller computes checksums from it."""
        one = self.in_order()
        data = memoryview(one.values.buffers()[2] or b"")
        offsets = _offsets(one.values)
        for topic, partition, start, end in one._runs():
            yield Content(topic, partition, end - start, data[offsets[start] : offsets[end]])

    def _runs(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield each run as (topic, partition, first message, message after the last one). The messages must be
        `in_order`."""
        moves = (self.topic[1:] != self.topic[:-1]) | (self.partition[1:] != self.partition[:-1])
        bounds = [0, *(np.flatnonzero(moves) + 1).tolist(), len(self)] if len(self) else []
        for start, end in pairwise(bounds):
            yield self.topics[int(self.topic[start])], int(self.partition[start]), start, end


class Run(NamedTuple):
    """Consecutive messages of one partition. Message i of the run has `keys[i]` and `values[i]`."""

    topic: str
    partition: int
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


class Content(NamedTuple):
    """The values of consecutive messages of one partition, concatenated. None: the null value (tombstone) of a single
    message."""

    topic: str
    partition: int
    messages: int
    values: memoryview | bytes | None


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message, with the topic and the partition to which it goes."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        """The bytes of key and value together."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def content(self) -> Content:
        """The message as a Content of one message, for the checksums in the progress (implements Mark.content)."""
        return Content(self.topic, self.partition, 1, self.value)


def _lengths(array: pa.Array) -> Int64s:
    return np.diff(_offsets(array))


def _offsets(array: pa.Array) -> Int64s:
    offsets: Int64s = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    return offsets


NOTHING = Outgoing(
    (), np.empty(0, np.int64), np.empty(0, np.int64), None, pa.array([], pa.large_binary()), np.empty(0, np.int64)
)
