"""What a file's watermarks take in memory is found out before they are there; honest files are far below the limit."""
# Attack: files with millions of equal watermarks

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support import change_files
from support.tiny_tenant import TinyTenant, watermark
from tistream.errors import CorruptObject
from tistream.format import change_rows, watermark_size
from tistream.format.unpacking import WATERMARKS_ADDED_MAX
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.wire import file_batch
from tistream.wire.file_batch import FileBatch

SORTER_BODY_MAX = 64 << 20
TENANT: TenantKey = TinyTenant.tenant
KEY = layout.change_file(TENANT, 1, 9)


def file_of(table: pa.Table) -> bytes:
    said = {"version": "1", "cluster_id": "7", "tenant_id": TENANT.tenant_id, "store_id": "1", "prev_ts": "0"}
    said |= {"old_value": "1", "first_watermark_row_group": "0"}
    return change_files.encode([table], {f"tistream.{name}": text for name, text in said.items()})


def rows_of(count: int, **columns: Any) -> pa.Table:
    """Equal rows, but for `columns`."""
    row = watermark(1, 0, 5)
    arrays = [
        columns[column.name].cast(column.type)
        if column.name in columns
        else pa.repeat(pa.scalar(row.get(column.name), column.type), count)
        for column in change_files.SCHEMA
    ]
    return pa.table(arrays, schema=change_files.SCHEMA)


def after_of(rows: int, values: int) -> pa.Array:
    """An `after` of so many equal values in each row."""
    numbers = pa.repeat(pa.scalar(1, pa.int64()), rows * values)
    logs = pa.StructArray.from_arrays([numbers, numbers], ["region_id", "log_index"])
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * values, pa.int32()), logs)


def read(data: bytes) -> pa.Table:
    objects = MemoryObjectStore()
    objects.put(KEY, data)
    return read_watermarks(objects, open_change_file(objects, KEY))


@pytest.mark.parametrize(
    ("hostile", "told"),
    [
        pytest.param(lambda: rows_of(800_000), "its watermarks take", id="equal-rows"),
        pytest.param(lambda: rows_of(10, after=after_of(10, 1_000_000)), "its watermarks take", id="equal-logs"),
        pytest.param(
            lambda: rows_of(100, end_key=pa.array([b"k" * (1 << 20)] * 100, pa.binary())),
            "written out",
            id="equal-keys",
        ),
    ],
)
def test_files_of_kilobytes_that_are_too_large_in_memory_are_refused_before_they_are_there(hostile, told):
    data = file_of(hostile())
    assert len(data) < 64 << 10
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptObject, match=told) as caught:
        read(data)
    assert caught.value.key == KEY
    assert pa.default_memory_pool().max_memory() <= max(peak, before + (8 << 20))


def region_key(number: int) -> bytes:
    return b"t" + (1 << 63 | number % 1_000).to_bytes(8, "big") + b"_r" + (number << 20).to_bytes(8, "big")


def test_two_rows_of_each_of_two_hundred_thousand_regions_are_read_and_fit_into_one_request():
    count = 400_000
    keys = [region_key(number) for number in range(count + 1)]
    numbers = pa.array(np.arange(count))
    table = rows_of(
        count,
        region_id=numbers,
        region_version=pa.array(np.arange(count) % 97),
        log_index=pa.array(np.arange(count) * 7),
        resolved_ts=pa.array(np.arange(count) + (470596577375551488)),
        key=pa.array(keys[:-1], pa.binary()),
        end_key=pa.array([key + b"~" for key in keys[:-1]], pa.binary()),
    )
    found = read(file_of(table))
    assert found.num_rows == count
    assert found.nbytes < watermark_size.BYTES_MAX
    routed = found.add_column(0, "task_id", pa.repeat(pa.scalar(1, pa.int64()), count))
    routed = routed.add_column(0, "file", pa.repeat(pa.scalar(0, pa.int32()), count))
    body = file_batch.encode(FileBatch(1, (), routed.cast(file_batch.WATERMARKS)))
    assert len(body) < SORTER_BODY_MAX


@pytest.mark.parametrize("key_bytes", [4, 50, 500])
def test_what_is_not_refused_fits_into_a_sorters_request(key_bytes):
    """However its bytes are shared out between rows and keys."""
    data: dict[int, bytes] = {}
    low, high = 1_000, 1_000_000 // (1 + key_bytes // 30)
    keys = pa.array([number.to_bytes(key_bytes, "big") for number in range(high + 1)], pa.binary())

    def fits(count: int) -> bool:
        data[count] = file_of(rows_of(count, key=keys[:count], end_key=keys[1 : count + 1]))
        try:
            read(data[count])
        except CorruptObject:
            return False
        return True

    assert not fits(high)
    while high - low > high // 10:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    found = read(data[low])
    width = found.nbytes + 12 * found.num_rows
    assert 0.7 * watermark_size.BYTES_MAX < width < SORTER_BODY_MAX - (1 << 20)


def test_pages_with_more_values_than_the_footer_states_are_not_unpacked():
    objects = MemoryObjectStore()
    objects.put(KEY, file_of(rows_of(10, after=after_of(10, 1_000))))
    file = open_change_file(objects, KEY)
    assert read_watermarks(objects, file).num_rows == 10
    group = file.footer.groups[0]
    assert [chunk.values for chunk in group.chunks if chunk.column == "after"] == [10_000, 10_000]
    lies = tuple(chunk._replace(values=9_999) if chunk.column == "after" else chunk for chunk in group.chunks)
    object.__setattr__(group, "chunks", lies)
    with pytest.raises(CorruptObject, match="pages of column after have 10000 values; its footer states 9999"):
        read_watermarks(objects, file)


def test_the_limit_of_what_dictionaries_add_is_not_what_keeps_a_file_small():
    assert WATERMARKS_ADDED_MAX + watermark_size.BYTES_MAX < 128 << 20
    assert set(watermark_size._WIDTHS) >= {"type", "key", *change_rows.WATERMARKS.names} - {"start_key"}
