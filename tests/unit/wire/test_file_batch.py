"""A file batch survives the wire."""

from __future__ import annotations

import pytest

from tistream.wire.file_batch import WATERMARKS, FileBatch, FileRef, RowGroupRef, decode, encode


def batch() -> FileBatch:
    groups = (RowGroupRef(0, 4, 100, 10, 0xDEADBEEF, b"a\x00", b"z"), RowGroupRef(1, 104, 50, 3, 0))
    ref = FileRef("7", "acme", 1, 20, 10, 5, "key", 900, 800, 1234, groups, {1: (0, 1), 2: ()})
    row = {
        "file": 0,
        "task_id": 1,
        "start_key": b"",
        "end_key": b"m",
        "region_id": 1,
        "region_version": 2,
        "first_index": 3,
        "log_index": 4,
        "base_ts": None,
        "resolved_ts": 6,
        "after": [{"region_id": 1, "log_index": 2}],
    }
    return FileBatch(9, (ref,), WATERMARKS.empty_table().from_pylist([row, {**row, "after": None}], schema=WATERMARKS))


def test_round_trip():
    before = batch()
    after = decode(encode(before))
    assert (after.route_version, after.files) == (before.route_version, before.files)
    assert after.watermarks.equals(before.watermarks)


@pytest.mark.parametrize("body", [b"", b"x", encode(batch())[:100]])
def test_garbage_is_no_batch(body):
    with pytest.raises(ValueError, match=r"batch|Arrow|IPC|schema"):
        decode(body)
