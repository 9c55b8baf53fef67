"""Rows at the very edges of a window: `low < commit_ts <= high`, also where a row group ends exactly there."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tistream.format.segment import SCHEMA
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.pool.writer import write_segment
from tistream.storage.backends.memory import MemoryObjectStore

STAMPS = [10, 15, 20]


EDGES = [9, 10, 11, 14, 15, 19, 20, 21]


@pytest.mark.parametrize(("low", "high"), [(low, high) for low in EDGES for high in EDGES if low <= high])
def test_a_window_has_its_high_end_and_not_its_low_one(low: int, high: int) -> None:
    rows = [
        {"table_id": 5, "commit_ts": ts, "start_ts": ts - 1, "key": b"%d" % ts, "op": 1, "value": b"v"} for ts in STAMPS
    ]
    body, segment = write_segment(pa.Table.from_pylist(rows, schema=SCHEMA), "segment")
    objects = MemoryObjectStore()
    objects.put("segment", body)
    found = read_rows(objects, segment, Window(low, high))["commit_ts"].to_pylist()
    assert found == [ts for ts in STAMPS if low < ts <= high]
    assert [ts for ts in STAMPS if ts in Window(low, high)] == found
