"""A file batch survives the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tistream.wire.file_batch import WATERMARKS, FileBatch, FileRef, RowGroupRef, decode, encode


def batch() -> FileBatch:
    groups = (RowGroupRef(0, 4, 100, 10, 0xDEADBEEF, b"a\x00", b"z", 2**63 - 1), RowGroupRef(1, 104, 50, 3, 0))
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


def test_round_trip() -> None:
    before = batch()
    after = decode(encode(before))
    assert (after.route_version, after.files) == (before.route_version, before.files)
    assert after.watermarks.equals(before.watermarks)


def test_what_all_tasks_have_made_durable_goes_along_or_is_not_known() -> None:
    assert decode(encode(batch())).flushed_ts is None
    assert decode(encode(replace(batch(), flushed_ts=1 << 60))).flushed_ts == 1 << 60
    for wrong in ("7", -1, 1.5):
        with pytest.raises(ValueError, match="flushed_ts"):
            decode(encode(replace(batch(), flushed_ts=wrong)))  # type: ignore[arg-type]


def other(body: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The batch with another header."""
    table = pa.ipc.open_stream(body).read_all()
    header = json.loads(table.schema.metadata[b"tistream.files"])
    change(header["files"][0])
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"tistream.files": json.dumps(header)})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_an_older_dispatcher_does_not_tell_what_row_groups_unpack_to() -> None:
    groups = decode(other(encode(batch()), lambda file: file.pop("unpacked"))).files[0].groups
    assert [(group.unpacked, group.weight) for group in groups] == [(0, 100), (0, 50)]


def test_an_older_sorter_finds_row_groups_as_it_knows_them() -> None:
    def check(file: dict[str, Any]) -> None:
        assert [len(group) for group in file["groups"]] == [7, 7]

    other(encode(batch()), check)


@pytest.mark.parametrize("stated", [[1], [1, 2, 3], [1, None]])
def test_what_does_not_fit_the_row_groups_is_no_batch(stated: list[int]) -> None:
    with pytest.raises(ValueError, match=r"not a file batch|zip"):
        decode(other(encode(batch()), lambda file: file.update(unpacked=stated)))


def test_a_row_group_weighs_what_it_unpacks_to_within_reason() -> None:
    weights = [RowGroupRef(0, 4, 100, 10, 0, unpacked=stated).weight for stated in (0, 99, 101, 2**63 - 1)]
    assert weights == [100, 100, 101, 1 << 40]


@pytest.mark.parametrize("body", [b"", b"x", encode(batch())[:100]])
def test_garbage_is_no_batch(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"batch|Arrow|IPC|schema"):
        decode(body)
