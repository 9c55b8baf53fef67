"""The history of slices as a table: each change has the values of its own slice, whichever slices changed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tistream.model.span import WHOLE, KeySpan
from tistream_sorter.watermark.slice_cuts import SliceCuts
from tistream_sorter.watermark.slice_history import NOT_CONNECTED, SliceChanges, SliceHistory

CUTS = SliceCuts(pa.array([b"", b"g", b"p"], pa.binary()), b"")


@pytest.mark.parametrize(("spans", "kept"), [(None, [2, 0]), ((WHOLE,), [2, 0]), ((KeySpan(b"q", b"r"),), [2])])
def test_a_change_of_some_slices_has_their_values(spans: tuple[KeySpan, ...] | None, kept: list[int]) -> None:
    history = SliceHistory()
    at = np.array([2, 0])
    none = np.full(2, -1, np.int64)
    history.note_many(
        SliceChanges(4, CUTS, at, at + 10, at + 20, at + 30, np.full(2, NOT_CONNECTED, np.int64), none, none, none)
    )
    rows = history.table(spans).select(["seq", "start_key", "version", "index", "resolved_ts"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (4, CUTS.start_of(one), one + 10, one + 20, one + 30) for one in kept
    ]
