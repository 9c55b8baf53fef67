"""Metadata objects, names and the prefix's own objects: what is read, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from support.log_bytes import PUT, Log, Part, record, row_key
from tistream.errors import CorruptObject, SourceRefused
from tistream.format.br import messages
from tistream.logbackup import memcomparable, meta_name, metadata, prefix
from tistream.logbackup.meta_name import MetaName
from tistream.logbackup.metadata import PLAIN_BYTES_MAX

HELD = [(row_key(5, 1), 7, record(PUT, 5, b"a")), (row_key(5, 2), 9, record(PUT, 5, b"b"))]


def parsed(
    changed: dict[str, Any] | None = None, of_group: dict[str, Any] | None = None, **of_meta: Any
) -> metadata.Metadata:
    log = Log()
    name = log.flush(Part(HELD, changed=changed or {}))
    data = log.objects.get(f"v1/backupmeta/{name}")
    if of_group:
        found = messages.parse("Metadata", "m", data)
        for field, value in of_group.items():
            setattr(found.file_groups[0], field, value)
        data = found.SerializeToString()
    if of_meta:
        data += messages.unparse("Metadata", of_meta)  # protobuf: a later field replaces, lists are joined
    return metadata.parse("m", data)


def test_a_slice_is_described() -> None:
    found = parsed()
    [one] = found.slices
    assert (one.low, one.high, one.min_ts, one.max_ts, one.entries) == (row_key(5, 1), row_key(5, 2), 7, 9, 2)
    assert (one.put, one.cf, one.compressed, one.offset, one.table_id) == (True, "write", True, 0, 5)


def test_table_ids_are_signed() -> None:
    assert parsed({"table_id": (1 << 64) - 3}).slices[0].table_id == -3


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"length": PLAIN_BYTES_MAX + 1}, "no more than"),
        ({"number_of_entries": 1 << 62}, "entries in"),
        ({"number_of_entries": 0}, "0 entries"),
        ({"range_offset": 1 << 20}, "do not fit"),
        ({"range_length": 1 << 20}, "do not fit"),
        ({"sha256": b"short"}, "SHA-256"),
        ({"min_ts": 10}, "timestamps"),
        ({"max_ts": 1 << 63}, "timestamps"),
        ({"min_ts": 0}, "timestamps"),
        ({"start_key": b"x"}, "not a versioned key"),
        ({"start_key": memcomparable.versioned_key(row_key(5, 9), 1)}, "above its last"),
    ],
)
def test_a_hostile_description_is_damaged(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(CorruptObject, match=reason):
        parsed(changed)


@pytest.mark.parametrize("path", ["../other/x.log", "/etc/passwd", "v1//x", "v1/./x", "", "v1/x\0", "v" * 1025])
def test_no_metadata_leads_out_of_the_prefix(path: str) -> None:
    with pytest.raises(CorruptObject, match="not below the prefix"):
        parsed(of_group={"path": path})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cf": "lock"}, "column family 'lock'"),
        ({"type": 2}, "of type 2"),
        ({"compression_type": 1}, "compression 1"),
        ({"file_encryption_info": {"encryption_method": 3}}, "encrypted"),
    ],
)
def test_an_unknown_form_is_refused_by_name(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(SourceRefused, match=reason):
        parsed(changed)


def test_plain_text_stated_as_encryption_is_read() -> None:
    assert len(parsed({"file_encryption_info": {"encryption_method": 1}}).slices) == 1


def test_metadata_of_the_first_version_and_of_a_later_one_is_refused() -> None:
    unversioned = Log()
    name = unversioned.flush(Part(HELD), meta_version=0)
    with pytest.raises(SourceRefused, match="version 1"):
        parsed(files=[{"path": "v1/x.log"}])
    with pytest.raises(SourceRefused, match="version 1"):
        metadata.parse("m", unversioned.objects.get(f"v1/backupmeta/{name}"))
    with pytest.raises(SourceRefused, match="metadata version 2"):
        parsed(meta_version=2)


def test_unknown_fields_are_ignored() -> None:
    log = Log()
    name = log.flush(Part(HELD))
    data = log.objects.get(f"v1/backupmeta/{name}") + bytes.fromhex("fa0603616263")  # field 111, three bytes
    assert len(metadata.parse("m", data).slices) == 1


def test_what_is_no_message_is_damaged() -> None:
    with pytest.raises(CorruptObject, match="protobuf"):
        metadata.parse("m", b"\xff\xff\xff")
    with pytest.raises(CorruptObject, match="no more than"):
        messages.parse("Metadata", "m", bytes(11), bytes_max=10)


@pytest.mark.parametrize(
    ("name", "hints"),
    [
        ("000000470596-fdbf7d0e-87a5-454c-abb4-ca813010df42.meta", None),
        ("470596577478311936-uuid.meta", None),
        ("0000000000000009-0000000000000001-0000000000000002-0000000000000008.meta", MetaName(9, 8)),
        ("000000000000000A-0000000000000001-0000000000000002-0000000000000008-SYNTHETICFF.meta", MetaName(10, 8)),
        (
            "000000000000000A0000000000000003-d0000000000000001l0000000000000002u0000000000000008p0000000000000001.meta",
            MetaName(10, 8, 3),
        ),
        ("000000000000000A0000000000000003-u00000000000000F8.meta", MetaName(10, 0xF8, 3)),
        ("000000000000000A0000000000000003-x0000000000000001.meta", MetaName(10, None, 3)),
    ],
)
def test_names_are_hints(name: str, hints: MetaName | None) -> None:
    assert meta_name.parse(name) == hints


def test_only_names_that_sort_by_time_are_listed_from_the_newest_on() -> None:
    hour = 3_600_000 << 18
    new = f"{5 * hour:016X}{3:016X}-u{5 * hour:016X}.meta"
    assert meta_name.list_after([new]) == f"{4 * hour:016X}"
    assert meta_name.list_after([new, "470596577478311936-uuid.meta"]) == ""
    assert meta_name.list_after([]) == ""


def backupmeta(**changed: Any) -> bytes:
    return messages.unparse("BackupMeta", {"cluster_id": 7, "cluster_version": "8.5.5", "start_version": 9} | changed)


def test_a_prefix_is_described() -> None:
    assert prefix.parse_backupmeta(backupmeta()) == prefix.LogBackup(7, "8.5.5", 9)
    assert prefix.parse_backupmeta(backupmeta(cluster_version='"v6.5.1-alpha"')).start_ts == 9


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"end_version": 3}, "full backup"),
        ({"cluster_version": "6.5.0"}, "14099"),
        ({"cluster_version": "v6.1.7"}, "14099"),
        ({"cluster_version": "nightly"}, "not of the form"),
        ({"start_version": 0}, "start_version"),
    ],
)
def test_another_kind_of_prefix_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(SourceRefused, match=reason):
        prefix.parse_backupmeta(backupmeta(**changed))


def test_checkpoints_and_safe_points() -> None:
    assert prefix.parse_checkpoint("k", (77).to_bytes(8, "little")) == 77
    assert prefix.global_checkpoint({1: 5, 2: 9, 3: 7}) == 9
    assert prefix.global_checkpoint({}) == 0
    assert prefix.parse_safe_point(b"12345\n") == 12345
    for data in (b"", bytes(7), b"\xff" * 8):
        with pytest.raises(CorruptObject):
            prefix.parse_checkpoint("k", data)
    for data in (b"", b"-1", b"12x", b"\xff", b"9" * 20):
        with pytest.raises(CorruptObject):
            prefix.parse_safe_point(data)
    assert prefix.store_of_checkpoint("v1/global_checkpoint/12.ts") == 12
    assert prefix.store_of_checkpoint("v1/global_checkpoint/12.tmp") is None
