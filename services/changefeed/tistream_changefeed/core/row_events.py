"""The row events of a window as a Payload for sinks that write rows (databases, Iceberg), not encoded messages.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from tistream.arrays import Int64s
from tistream_changefeed.core.outgoing import Content
from tistream_changefeed.fingerprints.fingerprint import Fingerprints
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import EventWindow, taken

_EVENT_BYTES = 32  # of an event besides its values, estimated


@dataclass(frozen=True)
class RowEvents:
    """The row events of a window: implements Payload. Element i is the event whose position (`at` of its RowBatch) is
    `first` + i."""

    window: EventWindow
    first: int = 0

    def __len__(self) -> int:
        return len(self.commit_ts)

    @cached_property
    def commit_ts(self) -> Int64s:
        """The commit_ts of each event, in order."""
        return self._placed([batch.commit_ts for batch in self.window.rows])

    @cached_property
    def sizes(self) -> Int64s:
        """The size of each event in bytes, estimated: the average of the rows in its batch, plus _EVENT_BYTES."""
        return self._placed([np.full(len(batch), _row_bytes(batch)) for batch in self.window.rows])

    def _placed(self, parts: Sequence[Int64s]) -> Int64s:
        out = np.empty(sum(map(len, parts)), np.int64)
        for batch, part in zip(self.window.rows, parts, strict=True):
            out[batch.at - self.first] = part
        return out

    def between(self, start: int, end: int) -> Self:
        """The events from index `start` (inclusive) to `end` (exclusive)."""
        low, high = self.first + start, self.first + end
        rows = []
        for batch in self.window.rows:
            begin, finish = np.searchsorted(batch.at, [low, high])
            if begin < finish:
                rows.append(batch if finish - begin == len(batch) else taken(batch, np.arange(begin, finish)))
        return replace(self, window=replace(self.window, rows=tuple(rows)), first=low)

    def contents(self) -> Iterator[Content]:
        """Yield nothing, because the sink does not write messages (implements Payload.contents)."""
        yield from ()

    def fingerprints(self) -> Fingerprints:
        """Return an empty mapping: these sinks are compared row by row (implements Payload.fingerprints)."""
        return {}


def _row_bytes(batch: RowBatch) -> int:
    rows = max(1, sum(len(columns[0]) for columns in (batch.new, batch.old) if columns))
    return _EVENT_BYTES + sum(int(array.nbytes) for columns in (batch.new, batch.old) for array in columns) // rows
