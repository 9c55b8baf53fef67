from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import change_files
from support.small_files import IDENTITY, KEY, TENANT, TS, change, sound
from tistream.errors import CorruptObject
from tistream.format import change_file
from tistream.format.change_file import ChangeFile, parse_footer
from tistream.format.parquet_footer import NeedMore


def parse(data: bytes) -> ChangeFile:
    found = parse_footer(KEY, IDENTITY, data, len(data))
    assert isinstance(found, ChangeFile)
    return found


def refused(data: bytes) -> str:
    """The reason for which a file is refused."""
    with pytest.raises(CorruptObject) as raised:
        parse_footer(KEY, IDENTITY, data, len(data))
    assert raised.value.key == KEY
    return raised.value.reason


def rewritten(**columns: pa.Array | None) -> bytes:
    """One row group whose columns are replaced (None: left out), under sound metadata."""
    table = change_files.table([change(b"k")])
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        if column is None:
            table = table.remove_column(index)
        elif index < 0:
            table = table.append_column(name, column)
        else:
            table = table.set_column(index, name, column)
    metadata = change_files.metadata_of(sound()) | {"tistream.first_watermark_row_group": "1"}
    return change_files.encode([table], {name: text for name, text in metadata.items() if name != change_files.CRC})


def test_reads_a_sound_footer() -> None:
    data = sound()
    file = parse(data)
    assert (file.tenant, file.store_id, file.ts, file.prev_ts) == (TENANT, 4, TS, 999)
    assert [group.rows for group in file.change_groups] == [4, 4, 2]
    assert [group.rows for group in file.watermark_groups] == [1]
    assert [(group.key_min, group.key_max) for group in file.change_groups] == [
        (b"k00", b"k03"),
        (b"k04", b"k07"),
        (b"k08", b"k09"),
    ]
    ranges = change_files.row_group_ranges(data)
    assert [(group.offset, group.offset + group.length) for group in file.groups] == ranges
    said = pq.read_metadata(pa.BufferReader(data))
    assert [group.unpacked for group in file.groups] == [said.row_group(at).total_byte_size for at in range(4)]
    assert [group.crc32 for group in file.groups] == change_files.row_group_crcs(data)
    assert data[file.footer_start :].endswith(b"PAR1")


def test_asks_for_more_when_the_tail_is_short() -> None:
    data = sound()
    wanted = parse_footer(KEY, IDENTITY, data[-100:], len(data))
    assert isinstance(wanted, NeedMore)
    file = parse_footer(KEY, IDENTITY, data[-wanted.length :], len(data))
    assert isinstance(file, ChangeFile)
    assert file == parse(data)
    assert wanted.length == len(data) - file.footer_start


def test_a_file_may_hold_nothing_at_all() -> None:
    metadata = change_files.metadata_of(sound()) | {
        "tistream.first_watermark_row_group": "0",
        change_files.CRC: "",
    }
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, change_files.SCHEMA) as writer:
        writer.add_key_value_metadata(metadata)
    assert parse(sink.getvalue().to_pybytes()).groups == ()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("version", None, "tistream.version is missing"),
        ("version", "2", "version '2'; this program knows 1"),
        ("cluster_id", "8", "wrong identity: its footer says cluster_id '8', its key '7'"),
        ("tenant_id", "other", "wrong identity: its footer says tenant_id 'other'"),
        ("tenant_id", None, "tistream.tenant_id is missing"),
        ("store_id", "5", "wrong identity: its footer says store_id '5', its key '4'"),
        ("store_id", "04", "wrong identity"),
        ("prev_ts", None, "tistream.prev_ts is missing"),
        ("prev_ts", "1000", "prev_ts 1000 is not below its own ts 1000"),
        ("prev_ts", "-1", "is not a decimal integer"),
        ("prev_ts", "0x10", "is not a decimal integer"),
        ("prev_ts", "9" * 19, "is not a decimal integer"),
        ("first_watermark_row_group", None, "is missing"),
        ("first_watermark_row_group", "5", "first_watermark_row_group 5 of only 4 row groups"),
        ("first_watermark_row_group", "x", "is not a decimal integer"),
        ("old_value", None, "tistream.old_value is missing"),
        ("old_value", "0", "tistream.old_value is '0'; version 1 knows '1' only"),
        ("row_group_crc32", "00000000", "has 1 entries for 4 row groups"),
        ("row_group_crc32", "0,0,0,0", "'0' is not eight hex digits"),
        ("row_group_crc32", "", "has 0 entries for 4 row groups"),
    ],
)
def test_refuses_wrong_footer_metadata(name: str, value: str | None, reason: str) -> None:
    assert reason in refused(change_files.with_metadata(sound(), **{name: value}))


def test_refuses_metadata_without_crcs() -> None:
    sink = pa.BufferOutputStream()
    metadata = {name: text for name, text in change_files.metadata_of(sound()).items() if name != change_files.CRC}
    metadata["tistream.first_watermark_row_group"] = "0"
    with pq.ParquetWriter(sink, change_files.SCHEMA) as writer:
        writer.add_key_value_metadata(metadata)
    assert "row_group_crc32 is missing" in refused(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("name", ["type", "op_type", "region_id", "region_version", "key"])
def test_required_columns_are_required(name: str) -> None:
    assert refused(rewritten(**{name: None})) == f"column {name} is missing"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("type", pa.array([1], pa.int64())),
        ("region_id", pa.array([1], pa.uint64())),
        ("key", pa.array(["k"])),
        ("key", pa.array([1], pa.int64())),
        ("commit_ts", pa.array([1], pa.int32())),
        ("commit_ts", pa.array([1], pa.timestamp("ms"))),
        ("value", pa.array([[b"v"]])),
        ("after", pa.array([1], pa.int64())),
        ("after", pa.array([[1]], pa.list_(pa.int64()))),
    ],
)
def test_known_columns_have_their_types(name: str, column: pa.Array) -> None:
    assert refused(rewritten(**{name: column})).startswith(f"column {name} is ")


def test_columns_may_be_missing_or_unknown_or_of_another_arrow_form() -> None:
    file = parse(
        rewritten(
            old_value=None,
            after=None,
            txn_source=None,
            novelty=pa.array([1.5]),
            value=pa.array([b"v"], pa.large_binary()),
            key=pa.array([b"k"]).dictionary_encode(),
        )
    )
    assert file.change_groups[0].rows == 1


def test_damaged_files_are_refused() -> None:
    data = sound()
    assert "too few" in refused(b"")
    assert "too few" in refused(b"PAR1PAR1")
    assert "does not end as a Parquet file" in refused(change_files.truncated(data))
    assert "does not end as a Parquet file" in refused(data[:-4] + b"PARE")
    assert "states a footer of" in refused(data[:-8] + struct.pack("<I", len(data)) + b"PAR1")
    assert refused(change_files.flipped_footer(data))


@given(st.data())
def test_no_damage_to_a_footer_is_anything_but_a_refusal(data: st.DataObject) -> None:
    """A changed byte may go unseen (a footer has no CRC), but it never crashes the reader or moves it elsewhere."""
    body = bytearray(SOUND)
    at = data.draw(st.integers(FOOTER_START, len(SOUND) - 1))
    body[at] = data.draw(st.integers(0, 255))
    try:
        found = parse_footer(KEY, IDENTITY, bytes(body), len(body))
    except CorruptObject:
        return
    if isinstance(found, ChangeFile):
        assert (found.tenant, found.store_id, found.ts) == IDENTITY
        assert all(4 <= group.offset <= group.offset + group.length <= found.footer_start for group in found.groups)


SOUND = sound()
FOOTER_START = parse(SOUND).footer_start


def test_the_schema_is_the_contracts() -> None:
    assert change_file.SCHEMA.names == change_files.SCHEMA.names
    for mine, written in zip(change_file.SCHEMA, change_files.SCHEMA, strict=True):
        assert mine.type == written.type
