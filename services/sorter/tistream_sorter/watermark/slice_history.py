"""Records the changes of all slices since the last manifest. Dead prewrites are found by comparing them with these
changes (design.md 3). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.model.span import KeySpan, merge_spans
from tistream_sorter.watermark.slice_cuts import SliceCuts

if TYPE_CHECKING:
    from tistream_sorter.watermark.watermark_rows import Watermark

NO_SCAN = -1
NOT_CONNECTED = -1
SCANNED_MAX = 64  # maximum number of spans that `History.scanned` returns


HISTORY = pa.schema(
    [
        pa.field("seq", pa.int32()),
        pa.field("start_key", pa.binary()),
        pa.field("end_key", pa.binary()),
        *(pa.field(name, pa.int64()) for name in ("version", "index", "resolved_ts")),
        *(pa.field(name, pa.int64()) for name in ("row_version", "row_index", "row_resolved_ts", "scan_index")),
    ]
)


@dataclass(frozen=True, slots=True)
class SliceChanges:
    """Changes of slices by the watermark rows of one file, as parallel arrays.

    seq: the position of the file in the tick. cuts: the slices at that time. at: positions of the slices in `cuts`.
    version, index, resolved_ts: the slice's values after the change. row_version, row_index, row_resolved_ts: the row's
    values; NOT_CONNECTED, -1 and -1 if the row only raised resolved_ts. scan_index: the log index as of which the row's
    scan reads, or NO_SCAN.
    """

    seq: int
    cuts: SliceCuts
    at: Int64s
    version: Int64s
    index: Int64s
    resolved_ts: Int64s
    row_version: Int64s
    row_index: Int64s
    row_resolved_ts: Int64s
    scan_index: Int64s

    def table(self, spans: Sequence[KeySpan] | None) -> pa.Table:
        """The changes as a table of HISTORY. With `spans`, only those of slices that overlap one of the spans."""
        chosen = slice(None) if spans is None else _touched(self.cuts, self.at, spans)
        at = self.at[chosen]
        slices = pa.array(at)
        columns = [pa.array(np.full(len(at), self.seq, np.int32))]
        columns += [self.cuts.starts.take(slices), self.cuts.ends.take(slices)]
        columns += [pa.array(getattr(self, name)[chosen]) for name in HISTORY.names[3:]]
        return pa.Table.from_arrays(columns, schema=HISTORY)


def _touched(cuts: SliceCuts, at: Int64s, spans: Iterable[KeySpan]) -> npt.NDArray[np.bool_]:
    wanted = np.zeros(len(cuts), bool)
    for span in spans:
        found = cuts.overlapping(span.start, span.end)
        wanted[found.start : found.stop] = True
    return wanted[at]


class SliceHistory:
    """Records every change of every slice since the last manifest, in order. match/liveness.py uses it to decide which
    prewrites are dead."""

    def __init__(self) -> None:
        self._changes: list[SliceChanges] = []
        self._noted: list[tuple[int, ...]] = []  # single changes that are not in `_changes` yet
        self._noted_in: tuple[int, SliceCuts] | None = None  # the seq of their file, and its cuts
        self._count = 0

    @property
    def count(self) -> int:
        """The number of changes, without the states before the first one."""
        return self._count

    def copy(self) -> SliceHistory:
        """A copy that changes independently."""
        self._flush()
        other = SliceHistory()
        other._changes, other._count = list(self._changes), self._count
        return other

    def begin(self, cuts: SliceCuts, version: Int64s, index: Int64s, resolved_ts: Int64s) -> None:
        """Record the state of each slice before the first change, with seq -1. The arrays are kept, so they must not
        change afterwards."""
        none = np.broadcast_to(np.int64(-1), len(cuts))
        at = np.arange(len(cuts))
        self._changes.append(SliceChanges(-1, cuts, at, version, index, resolved_ts, none, none, none, none))

    def note_many(self, changes: SliceChanges) -> None:
        """Record the changes by rows of one file, where each row covers one slice."""
        if len(changes.at):
            self._count += len(changes.at)
            self._flush()
            self._changes.append(changes)

    def note(
        self, seq: int, cuts: SliceCuts, at: int, known: tuple[int, int, int], row: Watermark, *, connected: bool
    ) -> None:
        """Record that `row` changed slice `at`. `seq`: the position of the row's file in the tick. `cuts`: the slices
        at that time. `known`: the new (version, index, resolved_ts) of the slice. `connected`: whether the row
        connected; otherwise it only raised resolved_ts."""
        scan = row.first_index - 1 if connected and row.base_ts is not None else NO_SCAN
        said = (row.region_version, row.log_index, row.resolved_ts) if connected else (NOT_CONNECTED, -1, -1)
        if self._noted_in is None or self._noted_in[0] != seq or self._noted_in[1] is not cuts:
            self._flush()
            self._noted_in = seq, cuts
        self._count += 1
        self._noted.append((at, *known, *said, scan))

    def table(self, spans: Sequence[KeySpan] | None = None) -> pa.Table:
        """All changes in order, as a table of HISTORY. With `spans`, only those of slices that overlap one of the
        spans."""
        self._flush()
        return pa.concat_tables([HISTORY.empty_table(), *(changes.table(spans) for changes in self._changes)])

    def scanned(self) -> tuple[KeySpan, ...]:
        """The spans of the slices to which a scan has connected, in key order. If there are more than SCANNED_MAX, the
        result is one span, from the first key to the last."""
        self._flush()
        found: list[KeySpan] = []
        for changes in self._changes:
            at = pa.array(changes.at[changes.scan_index >= 0])
            if len(at):
                ends = (changes.cuts.starts.take(at).to_pylist(), changes.cuts.ends.take(at).to_pylist())
                found += [KeySpan(start, end) for start, end in zip(*ends, strict=True)]
        return merge_spans(found, SCANNED_MAX)

    def _flush(self) -> None:
        if self._noted_in is not None:
            self._changes.append(SliceChanges(*self._noted_in, *np.array(self._noted, np.int64).T))
            self._noted, self._noted_in = [], None
