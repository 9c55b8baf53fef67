"""Range logs: all subscriptions of a range of keys share one log, with one watermark row in each file. Pure.

With a log for each subscription, 100,000 regions are 100,000 watermark rows in each file. The watermark of a range log
is the lowest ts that any of its keys has reached. If a subscription ends, its keys are scanned again within the same
log, and no watermark with a base_ts is written. The limits that late locks set (late_locks.py) apply to the watermark
of the range too (docs/agent.md, "Logs"). One slow region delays its whole range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream_agent.core import kernels as k
from tistream_agent.core.received.late_locks import reached_of


@dataclass(slots=True)
class RangeLogs:
    """The logs of a territory's ranges.

    Attributes:
        spans: the ranges, in keys of the platform; `starts`: their first keys in TiKV.
        value: for each range, the ts up to which the files, including the next one, are complete; before its first
            watermark row, its base_ts.
        state: a table for `kernels.apply`. A log has started once all its keys have been scanned; then a watermark row
            with base_ts is due.
    """

    spans: Sequence[KeySpan]
    starts: Sequence[bytes]
    value: Int64s
    log_id: Int64s = field(init=False)
    base: Int64s = field(init=False)
    cut_index: Int64s = field(init=False)  # the next first_index; 0 before the base row
    state: Int64s = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.spans)
        self.base = self.value.copy()
        self.log_id, self.cut_index = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.state = np.zeros((k.LOG_COLUMNS, count), np.int64)

    def of(self, start: bytes) -> int:
        """The number of the range that contains this key of TiKV."""
        return bisect_right(self.starts, start) - 1

    def log_of(self, number: int, log_id: int) -> int:
        """Return the log id of range `number`. If the range has none yet, it gets `log_id` for good."""
        if not self.log_id[number]:
            self.log_id[number] = log_id
        return int(self.log_id[number])

    @property
    def started(self) -> Bools:
        """For each range, whether its log has started."""
        return np.asarray(self.state[k.LOG_STARTED] > 0)

    def advance(self, table: Int64s, unsubscribed: Sequence[tuple[bytes, int]]) -> None:
        """Compute up to which ts the next file will be complete for each range, and record it in `table`, that of the
        subscriptions. A log starts here once all keys of its range have been scanned. `unsubscribed` has (first key in
        TiKV, the ts reached) of each piece without a subscription."""
        there = np.flatnonzero((table[k.STATE] == k.SCANNING) | (table[k.STATE] == k.LIVE))
        of = table[k.RANGE, there] - 1
        lowest = np.full(len(self.spans), MAX_TS, np.int64)
        waits = np.zeros(len(self.spans), bool)
        np.minimum.at(lowest, of, reached_of(table, there))
        waits[of[table[k.STATE, there] == k.SCANNING]] = True
        for start, reached in unsubscribed:
            number = self.of(start)
            lowest[number] = min(int(lowest[number]), reached)
            waits[number] = True
        self.state[k.LOG_STARTED, ~waits & (lowest < MAX_TS)] = 1
        moved = self.started
        assert bool((lowest[moved] >= self.value[moved]).all()), "the promise of a range went back"
        self.value[moved] = lowest[moved]
        table[k.FILED, there] = self.value[of]

    def rows(self) -> dict[str, Any]:
        """Make the watermark rows of the next file, as the columns of cutter.WatermarkColumns, and record them as
        written."""
        numbers = np.flatnonzero(self.started)
        numbers = numbers[np.argsort(self.log_id[numbers])]
        spans = [self.spans[number] for number in numbers.tolist()]
        first = self.cut_index[numbers]
        self.cut_index[numbers] = self.state[k.LOG_INDEX, numbers] + 1
        none = np.zeros(len(numbers), np.int64)
        return {
            "log_id": self.log_id[numbers],
            "start": pa.array([span.start for span in spans], pa.binary()),
            "end": pa.array([span.end for span in spans], pa.binary()),
            "first_index": np.maximum(first, 1),
            "log_index": self.state[k.LOG_INDEX, numbers],
            "base_ts": pa.array(self.base[numbers], mask=first > 0),
            "resolved_ts": self.value[numbers],
            "tikv_region_id": none,
            "tikv_store_id": none,
        }


def bounds_among(starts: Sequence[bytes], count: int) -> tuple[bytes, ...]:
    """Choose the bounds of `count` ranges that have about the same number of regions: at most `count - 1` keys, in
    order. `starts`: the first keys of the regions."""
    known = sorted(set(starts))
    return tuple(sorted({known[len(known) * number // count] for number in range(1, count)} if known else ()))


def ranges_of(span: KeySpan, bounds: Sequence[bytes]) -> list[KeySpan]:
    """Cut a span at the given bounds into ranges. Bounds outside of the span are ignored."""
    inside = sorted(bound for bound in set(bounds) if bound in span and bound != span.start)
    starts = [span.start, *inside]
    return [KeySpan(start, end) for start, end in zip(starts, [*inside, span.end], strict=True)]
