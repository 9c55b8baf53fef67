"""Encoded rows with the directories that they go to, before they are put into files. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s, UInt64s
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.outgoing import Content
from tistream_changefeed.fingerprints.fingerprint import Fingerprints, by_table


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The place that rows go to, which is one directory: the version of their table, the physical id of their
    partition (None: the table has no partitions, or these have no directories), and the directory level of their
    date, which may be empty."""

    version: TableVersion
    partition: int | None
    date: str


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Encoded rows in the order of sending: implements core.outgoing.Payload. Arrays have one element for each event.

    `place` is an index into `places`. `at` is the event's row in the table in `rows` of the same index. The rows of a
    place are in the order of sending, without gaps; the table may have more rows before and after them. `sizes` are the
    bytes that an event adds to a file, in Parquet before compression. `hashes`: the hash of each event.
    """

    places: tuple[FilePlace, ...]
    rows: tuple[pa.Table, ...]
    place: Int64s
    at: Int64s
    commit_ts: Int64s
    sizes: Int64s
    hashes: UInt64s

    def __len__(self) -> int:
        return len(self.commit_ts)

    def between(self, start: int, end: int) -> PlacedRows:
        """The events from index `start` (inclusive) to `end` (exclusive)."""
        return replace(
            self,
            place=self.place[start:end],
            at=self.at[start:end],
            commit_ts=self.commit_ts[start:end],
            sizes=self.sizes[start:end],
            hashes=self.hashes[start:end],
        )

    def contents(self) -> Iterator[Content]:
        """Yield nothing, because the sink does not write messages (implements Payload.contents)."""
        return iter(())

    def fingerprints(self) -> Fingerprints:
        """The Fingerprint of each table's events."""
        return by_table(self.hashes, self.place, [one.version.name for one in self.places])

    def parts(self) -> Iterator[tuple[int, pa.Table, Int64s]]:
        """The rows of each place as (index of the place, its rows, the bytes of each), in the order of the places'
        first events."""
        for number in dict.fromkeys(self.place.tolist()):
            mine = np.flatnonzero(self.place == number)
            at = self.at[mine]
            yield number, self.rows[number].slice(int(at[0]), len(at)), self.sizes[mine]

    def first_ts(self, number: int) -> int:
        """The commit_ts of the first event of the place `places[number]`."""
        return int(self.commit_ts[np.argmax(self.place == number)])


@dataclass(frozen=True, slots=True)
class PlacedBatch:
    """The encoded events of a batch, all of one place. `order` is the position of each among all events."""

    place: FilePlace
    rows: pa.Table
    order: Int64s
    commit_ts: Int64s
    sizes: Int64s
    hashes: UInt64s


def in_order(batches: Sequence[PlacedBatch]) -> PlacedRows:
    """Join the events of these batches, and return them in the order of sending."""
    if not batches:
        return EMPTY
    merged: dict[FilePlace, list[PlacedBatch]] = {}
    for one in batches:
        merged.setdefault(one.place, []).append(one)
    tables: list[pa.Table] = []
    columns: list[tuple[Int64s, ...]] = []
    hashes: list[UInt64s] = []
    for number, found in enumerate(merged.values()):
        order = np.concatenate([one.order for one in found])
        sequence = np.argsort(order, kind="stable")
        table = pa.concat_tables([one.rows for one in found])
        tables.append(table if len(found) == 1 else table.take(pa.array(sequence)))
        if len(found) == 1:
            sequence = np.arange(len(order))
        commit_ts = np.concatenate([one.commit_ts for one in found])[sequence]
        sizes = np.concatenate([one.sizes for one in found])[sequence]
        columns.append((order[sequence], np.full(len(order), number), np.arange(len(order)), commit_ts, sizes))
        hashes.append(np.concatenate([one.hashes for one in found])[sequence])
    order, place, at, commit_ts, sizes = (np.concatenate([one[index] for one in columns]) for index in range(5))
    sequence = np.argsort(order, kind="stable")
    hashed = np.concatenate(hashes)[sequence]
    return PlacedRows(
        tuple(merged), tuple(tables), place[sequence], at[sequence], commit_ts[sequence], sizes[sequence], hashed
    )


_NONE = np.empty(0, np.int64)
EMPTY = PlacedRows((), (), _NONE, _NONE, _NONE, _NONE, np.empty(0, np.uint64))
