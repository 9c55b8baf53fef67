"""A key of megabytes in a reason would be in every status answer and every log line."""

from __future__ import annotations

import polars as pl
import pytest

from support import change_files
from support.tiny_tenant import TinyTenant, watermark
from tistream.errors import CorruptObject
from tistream.format import change_file, change_rows
from tistream.model.span import KeySpan, shown_key
from tistream.schema.tidb.meta_change import MetaRow, UndecodableMeta
from tistream_sorter.jobs import shard_io
from tistream_sorter.state.task_state import TaskIdentity, first_state
from tistream_sorter.task.status import slice_holds
from tistream_sorter.watermark.slices import SliceMap

LONG = b"x" * (1 << 20)
SHORT_LINE = 1_000


def test_keys_are_shown_whole_up_to_a_length():
    assert shown_key(b"") == ""
    assert shown_key(b"\x00\xff") == "00ff"
    assert len(shown_key(LONG)) < SHORT_LINE
    assert "1048576 bytes" in shown_key(LONG)


def test_a_refused_watermark():
    rows = change_files.table([watermark(1, 0, 5, key=LONG, end_key=b"a")])
    with pytest.raises(CorruptObject, match="reversed span") as caught:
        change_rows.watermarks("k", rows.select(change_file.WATERMARK_COLUMNS))
    assert len(str(caught.value)) < SHORT_LINE


def test_a_late_slice():
    identity = TaskIdentity(TinyTenant.tenant, 1, KeySpan(LONG, b""), 100, 1)
    state = first_state(identity, 1)
    assert isinstance(state.slices, SliceMap)
    for hold in slice_holds(state, 10**9):
        assert len(hold.reason) < SHORT_LINE


def test_a_schema_row():
    assert len(str(UndecodableMeta(MetaRow(0, 5, 4, LONG, b"", None), "no"))) < SHORT_LINE


def test_a_row_that_stops_a_task():
    rows = pl.DataFrame({"start_ts": [4], "key": [LONG], "commit_ts": [5]})
    assert len(shard_io._shown(rows)) < SHORT_LINE
