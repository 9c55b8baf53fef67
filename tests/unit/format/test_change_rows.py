from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.change_files import table
from support.small_files import change, watermark
from tistream.errors import CorruptObject
from tistream.format import change_rows
from tistream.format.change_file import WATERMARK_COLUMNS


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(CorruptObject) as raised:
        call("the-key", *arguments)
    assert raised.value.key == "the-key"
    return raised.value.reason


def test_accepts_every_kind_of_change() -> None:
    rows = [
        change(b"a"),
        change(b"a", op_type=2, value=None, generation=3),
        change(b"a", type=2, op_type=0, commit_ts=600),
        change(b"a", type=2, op_type=2, commit_ts=600),
        change(b"a", type=3, op_type=0),
        change(b"a", type=4, op_type=2, commit_ts=600),
    ]
    change_rows.check_changes("k", table(rows), b"a", b"b")
    change_rows.check_changes("k", table([]), b"a", b"b")
    change_rows.check_changes("k", table(rows).select(["key"]))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"type": 100}, "type 100"),
        ({"type": 0}, "type 0"),
        ({"type": 5}, "type 5"),
        ({"type": None}, "column type holds nulls"),
        ({"key": None}, "column key holds nulls"),
        ({"region_version": None}, "column region_version holds nulls"),
        ({"op_type": 3}, "op_type 3"),
        ({"op_type": 0}, "no op_type with type 1"),
        ({"start_ts": None}, "no start_ts"),
        ({"start_ts": 0}, "no start_ts"),
        ({"type": 2, "commit_ts": None}, "no commit_ts"),
        ({"type": 4, "commit_ts": -5}, "no commit_ts"),
        ({"key": b"b"}, "outside of the bounds"),
        ({"key": b"A"}, "outside of the bounds"),
    ],
)
def test_refuses_what_is_no_change(more: dict[str, Any], reason: str) -> None:
    rows = table([change(b"a"), {**change(b"a"), **more}])
    assert reason in refused(change_rows.check_changes, rows, b"a", b"a")


def marks(*rows: dict[str, Any]) -> pa.Table:
    return table(rows).select(WATERMARK_COLUMNS)


def test_watermarks_come_out_in_file_order() -> None:
    found = change_rows.watermarks(
        "k",
        marks(
            watermark(after=[{"region_id": 3, "log_index": 44}]),
            watermark(key=b"", end_key=b"", base_ts=100, first_index=81),
        ),
    )
    assert found.schema == change_rows.WATERMARKS
    assert found.to_pylist() == [
        {
            "start_key": b"a",
            "end_key": b"z",
            "region_id": 9,
            "region_version": 2,
            "first_index": 60,
            "log_index": 80,
            "base_ts": None,
            "resolved_ts": 900,
            "after": [{"region_id": 3, "log_index": 44}],
        },
        {
            "start_key": b"",
            "end_key": b"",
            "region_id": 9,
            "region_version": 2,
            "first_index": 81,
            "log_index": 80,
            "base_ts": 100,
            "resolved_ts": 900,
            "after": None,
        },
    ]
    assert change_rows.watermarks("k", marks()).num_rows == 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"type": 1}, "row of type 1"),
        ({"type": None}, "column type holds nulls"),
        ({"key": None}, "column start_key holds nulls"),
        ({"end_key": None}, "column end_key holds nulls"),
        ({"end_key": b"a"}, "empty or reversed span"),
        ({"end_key": b"A"}, "empty or reversed span"),
        ({"first_index": None}, "column first_index holds nulls"),
        ({"log_index": None}, "column log_index holds nulls"),
        ({"resolved_ts": None}, "column resolved_ts holds nulls"),
        ({"first_index": 82}, "first_index beyond log_index + 1"),
        ({"resolved_ts": -1}, "resolved_ts -1"),
        ({"base_ts": -1}, "base_ts -1"),
        ({"after": [None]}, "lacks the region_id or log_index"),
        ({"after": [{"region_id": 3, "log_index": None}]}, "lacks the region_id or log_index"),
    ],
)
def test_refuses_incomplete_watermarks(more: dict[str, Any], reason: str) -> None:
    assert reason in refused(change_rows.watermarks, marks(watermark(), watermark(**more)))
