from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.footer_damage import TABLE, WRITERS
from support.small_files import KEY, sound
from tistream.errors import CorruptObject
from tistream.format import thrift_compact as thrift
from tistream.format.parquet_footer import ParquetFooter, read_footer
from tistream.format.sparse_file import SparseFile
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_changes, read_watermarks

leaf = (
    st.tuples(st.sampled_from([thrift.I16, thrift.I32, thrift.I64]), st.integers(-(2**63), 2**63 - 1))
    | st.tuples(st.just(thrift.BINARY), st.binary(max_size=200))
    | st.booleans().map(lambda value: (thrift.TRUE if value else thrift.FALSE, value))
    | st.tuples(st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8))
    | st.tuples(st.just(thrift.BYTE), st.integers(0, 255))
    | st.lists(st.integers(-5, 5), max_size=20).map(lambda values: (thrift.LIST, (thrift.I32, values)))
)
fields = st.integers(-100, 3000)
structs = st.dictionaries(fields, leaf, max_size=6)
nested = st.dictionaries(
    fields,
    leaf
    | structs.map(lambda struct: (thrift.STRUCT, struct))
    | st.lists(structs, max_size=3).map(lambda values: (thrift.LIST, (thrift.STRUCT, values))),
)


@given(nested)
def test_thrift_reads_what_it_wrote(struct: thrift.Struct) -> None:
    assert thrift.read_struct(thrift.write_struct(struct)) == struct


@given(st.binary(max_size=100))
def test_thrift_refuses_noise_politely(data: bytes) -> None:
    try:
        thrift.read_struct(data)
    except ValueError:
        return


@pytest.mark.parametrize("write", WRITERS)
def test_reads_what_any_writer_writes(write: Callable[[str], None], tmp_path: Path) -> None:
    write(str(tmp_path / "file"))
    data = (tmp_path / "file").read_bytes()
    footer = read_footer("k", data, len(data))
    assert isinstance(footer, ParquetFooter)
    assert sum(group.rows for group in footer.groups) == 200
    for group in footer.groups:
        assert group.range[0] >= 4
        assert sum(group.range) <= footer.start
        assert [chunk.column for chunk in group.chunks] == ["key", "ts", "kind", "after", "after"]
        bounds = {chunk.column: (chunk.low, chunk.high) for chunk in group.chunks[:3]}
        assert bounds["key"] == (b"a", b"d")
    # the row groups' bytes alone are enough, and nothing outside of them is touched
    pieces = [(group.range[0], data[group.range[0] : sum(group.range)]) for group in footer.groups]
    file = pq.ParquetFile(pa.PythonFile(SparseFile(len(data), pieces)), metadata=footer.metadata, pre_buffer=False)
    found, whole = file.read(), pq.read_table(tmp_path / "file")
    assert found.to_pylist() == whole.to_pylist()
    assert found.schema.field("key").type == pa.binary()
    for group in footer.groups:
        ranges = list(group.ranges({"ts"}))
        assert len(ranges) == 1
        assert group.range[0] <= ranges[0][0] < sum(ranges[0]) <= sum(group.range)


def test_metadata_is_said_but_not_passed_on() -> None:
    sink = io.BytesIO()
    pq.write_table(TABLE.replace_schema_metadata({"mine": "x"}), sink)
    data = sink.getvalue()
    footer = read_footer("k", data, len(data))
    assert isinstance(footer, ParquetFooter)
    assert footer.key_values[b"mine"] == b"x"
    assert b"ARROW:schema" in footer.key_values
    assert footer.metadata.metadata is None


def test_an_encrypted_footer_is_refused() -> None:
    data = sound()
    with pytest.raises(CorruptObject, match="PARE"):
        read_footer("k", data[:-4] + b"PARE", len(data))


@pytest.mark.parametrize("seed", range(4))
def test_damage_never_ends_the_process(seed: int) -> None:
    """Footers with bytes changed at random: refused, or else the rows are the same.

    pyarrow alone ends the process on one in a few hundred.
    """
    chance = random.Random(seed)
    data = sound()
    footer = read_footer(KEY, data, len(data))
    assert isinstance(footer, ParquetFooter)
    sane = read_all(data)
    refusals = 0
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 1, 2, 5])):
            damaged[chance.randrange(footer.start, len(data))] = chance.randrange(256)
        try:
            found = read_all(bytes(damaged))
        except CorruptObject:
            refusals += 1
            continue
        assert found[0].equals(sane[0])
        assert found[1].equals(sane[1])
    assert refusals > 75


def read_all(data: bytes) -> tuple[pa.Table, pa.Table]:
    """A change file's rows and watermarks."""
    objects = MemoryObjectStore()
    objects.put(KEY, data)
    file = open_change_file(objects, KEY)
    return read_changes(objects, file, [group.index for group in file.change_groups]), read_watermarks(objects, file)


class Counted(bytes):
    """Counts how often one of its bytes is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(at)


def test_a_number_without_end_is_not_put_together() -> None:
    """Each byte more would make the one before it longer: megabytes of them would take minutes."""
    for field in (b"\x15", b"\x18", b"\x05"):  # a number, the length of bytes, a field's own number
        with pytest.raises(ValueError, match="an integer has more than 64 bits"):
            thrift.read_struct(Counted(field + b"\xff" * 1_000_000 + b"\x01"))
    assert Counted.looks < 100


def test_a_dictionary_offset_of_another_type_is_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 1]}), sink)
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    file = thrift.read_struct(data[-8 - length : -8])
    file[4][1][1][0][1][1][1][0][3][1][11] = (thrift.BINARY, b"four")
    foot = thrift.write_struct(file)
    data = data[: -8 - length] + foot + len(foot).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(CorruptObject, match="field 11 is missing or of type 8"):
        read_footer("k", data, len(data))
