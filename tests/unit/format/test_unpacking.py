"""Files of a few kilobytes that unpack to gigabytes are refused before they are, and others read as they are."""
# Attack: files of kilobytes whose dictionaries and encodings unpack to gigabytes; pages that unpack to more than
#   their footer states; pages without end

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import change_files
from support.hostile.files import bomb
from support.small_files import KEY, TENANT, change, sound, watermark
from tistream.errors import CorruptObject
from tistream.format import change_file, unpacking
from tistream.format.parquet_footer import ParquetFooter, read_footer
from tistream.format.sparse_file import SparseFile
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_changes, read_watermarks


def held(data: bytes, key: str = KEY) -> tuple[MemoryObjectStore, change_file.ChangeFile]:
    objects = MemoryObjectStore()
    objects.put(key, data)
    return objects, open_change_file(objects, key)


def of_table(table: pa.Table, **options: Any) -> bytes:
    """A file of these changes, written as pyarrow is told to."""
    said = {name: text for name, text in change_files.metadata_of(sound()).items() if name != change_files.CRC}
    said["tistream.first_watermark_row_group"] = "1"

    def write(metadata: dict[str, str]) -> bytes:
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, table.schema, compression="zstd", store_schema=False, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(metadata)
        return sink.getvalue()

    crcs = ",".join(f"{crc:08x}" for crc in change_files.row_group_crcs(write(said)))
    return write({**said, change_files.CRC: crcs})


def test_a_value_that_a_dictionary_holds_once_for_every_row_is_not_written_out() -> None:
    key = layout.change_file(TENANT, 4, 1_001)
    data = bomb(TENANT, 4, 1_000)
    assert len(data) < 100_000
    objects, file = held(data, key)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptObject, match="take 15099805696 bytes, written out"):
        read_changes(objects, file, [0])
    assert pa.total_allocated_bytes() - before < 64 << 20
    assert read_watermarks(objects, file).num_rows == 1


def test_a_column_is_read_that_has_a_dictionary_here_and_lengths_there(tmp_path: Path) -> None:
    """As writers do that leave dictionaries when they grow: DuckDB (Parquet's version 2) for each row group anew."""
    same, other = "'same ' || (i % 3)", "'long ' || md5(i::varchar) || md5((i + 1)::varchar)"
    value = f"case when i < 4096 then {same} else {other} end"
    rows = f"select ({value})::blob as value, i::bigint as start_ts from range(8192) x(i)"
    path = tmp_path / "file.parquet"
    duckdb.sql(f"copy ({rows}) to '{path}' (format parquet, compression zstd, row_group_size 4096, parquet_version v2)")
    data = path.read_bytes()
    encodings = [pq.read_metadata(path).row_group(number).column(0).encodings for number in (0, 1)]
    assert encodings == [("RLE_DICTIONARY",), ("DELTA_LENGTH_BYTE_ARRAY",)]
    footer = read_footer("file", data, len(data))
    assert isinstance(footer, ParquetFooter)
    source = SparseFile(len(data), [(0, data)])
    found = change_file.decode_groups("file", footer, source, [0, 1], ["value", "start_ts"])
    assert found["value"].to_pylist() == duckdb.sql(rows).to_arrow_table()["value"].to_pylist()
    with pytest.raises(CorruptObject, match="column value takes more than"):
        change_file.decode_groups("file", footer, source, [0, 1], ["value", "start_ts"], -515_000)


def test_what_incremental_encodings_add_is_bounded_over_all_row_groups() -> None:
    values = [b"v" * 10_000 + b"%05d" % number for number in range(1_000)]
    sink, table = io.BytesIO(), pa.table({"value": pa.array(values, pa.binary())})
    options = {"use_dictionary": False, "column_encoding": {"value": "DELTA_BYTE_ARRAY"}}
    pq.write_table(table, sink, row_group_size=100, compression="zstd", **options)
    data = sink.getvalue()
    footer = read_footer("file", data, len(data))
    assert isinstance(footer, ParquetFooter)
    source = SparseFile(len(data), [(0, data)])
    decode = partial(change_file.decode_groups, "file", footer, source)
    assert decode(range(10), ["value"], 20 << 20).num_rows == 1_000
    assert decode([3], ["value"], 2 << 20).num_rows == 100
    with pytest.raises(CorruptObject, match="column value takes more than"):
        decode(range(10), ["value"], 2 << 20)


def test_pages_without_end_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [change(b"k%05d" % number, value=b"%05d" % number * 50) for number in range(3_000)]
    objects, file = held(
        of_table(change_files.table(rows), use_dictionary=False, data_page_size=100, write_batch_size=10)
    )
    assert read_changes(objects, file, [0]).num_rows == 3_000
    monkeypatch.setattr(unpacking, "PAGES_MORE", 10 - 3_000)
    with pytest.raises(CorruptObject, match="has more than 10 pages"):
        read_changes(objects, file, [0])


def test_what_dictionaries_add_is_bounded_over_all_row_groups() -> None:
    value = b"v" * 1_000
    rows = [change(b"k%02d" % number, value=value) for number in range(100)]
    data = change_files.change_file(
        TENANT.cluster_id, TENANT.tenant_id, 4, 999, changes=rows, watermarks=[watermark()], rows_per_group=10
    )
    objects, file = held(data)
    table = read_changes(objects, file, range(10))
    assert table["value"].to_pylist() == [value] * 100
    room = sum(
        unpacking.added_bytes(read_changes(objects, file, [index]), [group])
        for index, group in enumerate(file.groups[:10])
    )
    assert room > 20_000
    assert read_changes(objects, file, range(10), added_max=room).num_rows == 100
    with pytest.raises(CorruptObject, match="written out"):
        read_changes(objects, file, range(10), added_max=room // 2)


def test_pages_that_unpack_to_more_than_the_footer_states_are_not_unpacked() -> None:
    data = of_table(change_files.table([change(b"k", value=b"v" * 100_000)]), use_dictionary=False)
    objects, file = held(data)
    assert read_changes(objects, file, [0]).num_rows == 1
    group = file.footer.groups[0]
    chunks = {chunk.column: chunk for chunk in group.chunks}
    assert chunks["value"].unpacked >= 100_000
    chunks["value"] = chunks["value"]._replace(unpacked=99_999)  # as a footer that lies
    object.__setattr__(group, "chunks", tuple(chunks.values()))
    with pytest.raises(CorruptObject, match=r"pages of column value unpack to 1000\d\d bytes; its footer states 99999"):
        read_changes(objects, file, [0])


def test_groups_of_the_size_that_the_contract_names_are_read_however_they_are_encoded() -> None:
    """A hundred of 6 MiB each, all of one value."""
    group = change_files.table([change(b"", value=b"v" * (1 << 20))] * 6)
    at = group.schema.get_field_index("key")
    keys = pa.array([b"k%04d" % number for number in range(600)], pa.binary())
    groups = [group.set_column(at, "key", keys[low : low + 6]) for low in range(0, 600, 6)]
    said = {name: text for name, text in change_files.metadata_of(sound()).items() if name != change_files.CRC}
    said["tistream.first_watermark_row_group"] = "100"
    data = change_files.encode([*groups, change_files.table([watermark()])], said)
    assert len(data) < 1 << 20
    objects, file = held(data)
    assert read_changes(objects, file, range(100)).num_rows == 600


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_values_that_say_what_they_add_to_the_one_before_are_read_within_the_bound(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    rows = [change(b"k%05d" % number, value=b"v" * 10_000 + b"%05d" % number) for number in range(3_000)]
    encoding = {"key": "DELTA_BYTE_ARRAY", "value": "DELTA_BYTE_ARRAY"}
    table = change_files.table(rows)
    data = of_table(table, use_dictionary=False, column_encoding=encoding, data_page_version=version)
    assert len(data) < 200_000
    objects, file = held(data)
    found = read_changes(objects, file, [0])
    assert found["key"].to_pylist() == table["key"].to_pylist()
    assert found["value"].to_pylist() == table["value"].to_pylist()
    del found, table
    monkeypatch.setattr(unpacking, "LOOK_BYTES", 1 << 20)
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptObject, match="column value takes more than"):
        read_changes(objects, file, [0], added_max=8 << 20)
    assert pa.total_allocated_bytes() - before < 4 << 20
    assert pa.default_memory_pool().max_memory() <= max(peak, before + (16 << 20))
    assert read_changes(objects, file, [0], added_max=64 << 20).num_rows == 3_000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_however_a_sound_column_is_encoded_it_reads_as_it_was(version: str, dictionary: bool) -> None:
    rows = [
        change(b"k%04d" % number, value=(b"v%d" % (number % 7)) * 300 if number % 3 else None)
        for number in range(2_000)
    ]
    table = change_files.table(rows)
    data = of_table(table, use_dictionary=dictionary, data_page_version=version, dictionary_pagesize_limit=1_000)
    objects, file = held(data)
    found = read_changes(objects, file, [0])
    for name in change_file.CHANGE_COLUMNS:
        assert found[name].to_pylist() == table[name].to_pylist()
