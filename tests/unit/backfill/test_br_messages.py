"""The protobuf messages of BR: what is read of them, and that no input makes a reader go beyond the data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backup_files import nested, number, text, varint
from tistream.errors import CorruptObject
from tistream.format.br import messages

FILE = {"name": "1/2_write.sst", "sha256": b"\x01" * 32, "start_key": b"a", "total_kvs": 300, "cf": "write", "size": 7}
BACKUP = {"cluster_id": 7, "end_version": 5, "files": [FILE], "file_index": {"data_files": [FILE, FILE]}}


def test_fields_come_back_in_order() -> None:
    found = messages.parse("BackupMeta", "k", messages.unparse("BackupMeta", BACKUP))
    assert (found.cluster_id, found.end_version, found.cluster_version) == (7, 5, "")
    assert [file.total_kvs for file in (*found.files, *found.file_index.data_files)] == [300] * 3
    assert messages.unparse("File", FILE) == b"".join(
        (
            text(1, FILE["name"]),
            text(2, FILE["sha256"]),
            text(3, b"a"),
            number(8, 300),
            text(10, "write"),
            number(11, 7),
        )
    )


def test_unknown_fields_are_left_out() -> None:
    data = number(6, 5) + text(99, "x") + b"\xc1\x0c" + bytes(8) + number(97, 1)
    assert messages.parse("BackupMeta", "k", data).end_version == 5


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x05ab",
        b"\x12" + varint(1 << 62),
        b"\x08" + b"\xff" * 10,
        b"\x08\x80",
        b"\x0b",
        b"\x0e",
        b"\x0d\x01",
        b"\x00\x01",
        text(2, b"\xff"),
        nested(4, b"\x0a\x05ab"),
    ],
)
def test_malformed_input_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptObject, match="k: is not a protobuf message BackupMeta"):
        messages.parse("BackupMeta", "k", data)


def test_the_size_is_bounded() -> None:
    with pytest.raises(CorruptObject, match="k: has 4 bytes; no more than 3 are read"):
        messages.parse("BackupMeta", "k", number(1, 1) * 2, bytes_max=3)


def test_a_field_of_the_wrong_type_counts_as_absent() -> None:
    found = messages.parse("BackupMeta", "k", text(6, "x") + number(4, 1))
    assert (found.end_version, list(found.files)) == (0, [])


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for name in ("BackupMeta", "MetaFile", "Metadata"):
        try:
            found = messages.parse(name, "k", data)
        except CorruptObject:
            continue
        assert found.ByteSize() <= 10 * len(data)
