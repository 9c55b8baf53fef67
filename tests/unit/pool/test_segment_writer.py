from __future__ import annotations

import io
import zlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.errors import InvariantBroken
from tistream.format.segment import SCHEMA
from tistream.pool import writer
from tistream.pool.writer import PACKED_ROWS, SPLIT_ROWS, row_group_cuts, write_segment


def rows(table_ids: list[int], value: bytes | None = b"value") -> pa.Table:
    """Rows of the tables given, in order, each at a ts of its own."""
    count = len(table_ids)
    ts = pa.array(range(1000, 1000 + count), pa.int64())
    columns = [
        pa.array(sorted(table_ids), pa.int64()),
        ts,
        pc.subtract(ts, 5),
        pa.array([b"k%06d" % number for number in range(count)], pa.binary()),
        pa.array([1] * count, pa.int8()),
        pa.array([value] * count, pa.binary()),
        pa.array([None] * count, pa.binary()),
        pa.array([None] * count, pa.int64()),
    ]
    return pa.table(columns, schema=SCHEMA)


def test_writes_what_it_says() -> None:
    table = rows([4, 4, 5, 6])
    body, ref = write_segment(table, "the/key")
    assert pq.read_table(io.BytesIO(body)).cast(SCHEMA).equals(table)
    assert (ref.key, ref.size, ref.rows) == ("the/key", len(body), 4)
    assert ref.checksum == f"{zlib.crc32(body):08x}"
    (group,) = ref.row_groups
    assert (group.rows, group.table_id_min, group.table_id_max) == (4, 4, 6)
    assert (group.commit_ts_min, group.commit_ts_max) == (1000, 1003)
    assert write_segment(table, "the/key") == (body, ref)


def test_row_groups_follow_the_tables() -> None:
    sizes = {1: 300_000, 2: 10, 3: 20, 4: 70_000, 5: 40_000, 6: 20_000, 7: 10_000, 8: 65_536, 9: 1}
    table_ids = np.repeat(list(sizes), list(sizes.values()))
    cuts = row_group_cuts(table_ids)
    assert [(end - start, table_ids[start], table_ids[end - 1]) for start, end in cuts] == [
        (131_072, 1, 1),
        (131_072, 1, 1),
        (37_856, 1, 1),
        (30, 2, 3),
        (70_000, 4, 4),
        (60_000, 5, 6),
        (10_000, 7, 7),
        (65_536, 8, 8),
        (1, 9, 9),
    ]


@given(st.lists(st.sampled_from([1, 2, 1000, 30_000, 65_536, 65_537, 131_072, 200_000]), min_size=1, max_size=8))
def test_cuts_cover_all_rows_within_their_limits(sizes: list[int]) -> None:
    table_ids = np.repeat(np.arange(len(sizes)), sizes)
    cuts = row_group_cuts(table_ids)
    assert (cuts[0][0], cuts[-1][1]) == (0, len(table_ids))
    assert all(end == start for (_, end), (start, _) in pairwise(cuts))
    for start, end in cuts:
        if table_ids[start] == table_ids[end - 1]:
            assert 0 < end - start <= SPLIT_ROWS
        else:
            assert end - start <= PACKED_ROWS
            assert start == 0 or table_ids[start - 1] != table_ids[start], "a packed table is whole"
            assert end == len(table_ids) or table_ids[end - 1] != table_ids[end], "a packed table is whole"


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_long_rows_end_a_row_group_early(sizes: list[int]) -> None:
    whole = writer.GROUP_BYTES
    try:
        writer.GROUP_BYTES = 100
        cuts = row_group_cuts(np.zeros(len(sizes), np.int64), np.array(sizes))
    finally:
        writer.GROUP_BYTES = whole
    assert [at for cut in cuts for at in range(*cut)] == list(range(len(sizes)))
    for start, end in cuts:
        assert sum(sizes[start:end]) <= 100
    for (start, end), _ in pairwise(cuts):
        assert sum(sizes[start : end + 1]) > 100


def test_rows_of_megabytes_make_small_row_groups() -> None:
    table = rows([1] * 100, value=bytes(2 << 20))
    _, ref = write_segment(table, "k")
    assert [group.rows for group in ref.row_groups] == [31, 31, 31, 7]


@pytest.mark.parametrize("binary", [pa.large_binary(), pa.binary_view()])
def test_other_binary_types_give_the_same_bytes(binary: pa.DataType) -> None:
    table = rows([1, 2, 3])
    other = table.cast(pa.schema([f.with_type(binary) if pa.types.is_binary(f.type) else f for f in SCHEMA]))
    assert write_segment(other, "k") == write_segment(table, "k")


def test_only_what_prunes_has_statistics_and_pages_have_checksums() -> None:
    view, _ = write_segment(rows([1] * 1000), "k")
    body = bytes(view)
    group = pq.read_metadata(io.BytesIO(body)).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert {name for name, column in columns.items() if column.is_stats_set} == {"table_id", "commit_ts", "key", "op"}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    page = columns["value"].data_page_offset + columns["value"].total_compressed_size - 3
    damaged = body[:page] + bytes([body[page] ^ 1]) + body[page + 1 :]
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(io.BytesIO(damaged), page_checksum_verification=True)


@pytest.mark.parametrize(
    "table",
    [
        rows([1, 2]).take([1, 0]),
        rows([1, 1]).take([1, 0]),
        rows([]),
        rows([1]).select(["table_id", "commit_ts"]),
        rows([1]).set_column(1, "commit_ts", pa.array([None], pa.int64())),
    ],
)
def test_refuses_rows_that_are_no_segment(table: pa.Table) -> None:
    with pytest.raises(InvariantBroken):
        write_segment(table, "k")
