"""Every change of every slice since the last manifest: what decides which prewrites are dead (design.md 3). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from tistream_sorter.slices import SliceMap
    from tistream_sorter.watermark import Watermark

NO_SCAN = -1

Int64s = npt.NDArray[np.int64]

HISTORY = pa.schema(
    [
        pa.field("seq", pa.int32()),
        pa.field("start_key", pa.binary()),
        pa.field("end_key", pa.binary()),
        *(pa.field(name, pa.int64()) for name in ("version", "index", "resolved_ts")),
        *(pa.field(name, pa.int64()) for name in ("row_version", "row_index", "row_resolved_ts", "scan_index")),
    ]
)


class History:
    """Every change of every slice since the last manifest, in order: what decides which prewrites are dead.

    A change has the slice's new (version, index, resolved_ts) and, if a row *connected*, that row's own version,
    last index and resolved_ts, and the log index as of which it is a scan. `row_version` is -1 where it did not.
    """

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows: list[dict[str, Any]] = []

    def copy(self) -> History:
        """An independent history."""
        other = History()
        other._tables, other._rows = list(self._tables), list(self._rows)
        return other

    def begin(self, slices: SliceMap) -> None:
        """The states before the first change, under seq -1."""
        starts, ends = slices._boundaries()
        values = (slices._version, slices._index, slices._resolved)
        none = np.full(len(slices), -1, np.int64)
        self._tables.append(_history(-1, starts, ends, *(v.copy() for v in values), none, none, none))

    def note_many(
        self,
        seq: int,
        starts: pa.Array,
        ends: pa.Array,
        version: Int64s,
        index: Int64s,
        resolved: Int64s,
        row_index: Int64s,
        row_resolved: Int64s,
    ) -> None:
        """Rows that connected to their slices in steady state (the slice's version is the row's)."""
        if len(version):
            self._flush()
            self._tables.append(_history(seq, starts, ends, version, index, resolved, version, row_index, row_resolved))

    def note(self, seq: int, slices: SliceMap, at: int, row: Watermark, *, connected: bool) -> None:
        """One change of slice `at` by `row`."""
        _, version, index, resolved, _ = slices._values(at)
        scan = row.first_index - 1 if connected and row.base_ts is not None else NO_SCAN
        self._rows.append(
            {
                "seq": seq,
                "start_key": slices._starts[at],
                "end_key": slices._end(at),
                "version": version,
                "index": index,
                "resolved_ts": resolved,
                "row_version": row.region_version if connected else -1,
                "row_index": row.log_index if connected else -1,
                "row_resolved_ts": row.resolved_ts if connected else -1,
                "scan_index": scan,
            }
        )

    def table(self) -> pa.Table:
        """All changes in order (HISTORY)."""
        self._flush()
        return pa.concat_tables(self._tables) if self._tables else HISTORY.empty_table()

    def _flush(self) -> None:
        if self._rows:
            self._tables.append(pa.Table.from_pylist(self._rows, schema=HISTORY))
            self._rows = []


def _history(seq: int, starts: pa.Array, ends: pa.Array, *values: Int64s) -> pa.Table:
    count = len(starts)
    columns = [pa.array(np.full(count, seq, np.int32)), starts, ends, *map(pa.array, values)]
    return pa.Table.from_arrays([*columns, pa.array(np.full(count, NO_SCAN, np.int64))], schema=HISTORY)
