"""Pending parts in a manifest: what version 2 added is kept, what version 1 wrote is read, version 3 is refused."""

from __future__ import annotations

import struct

import pytest

from tistream.errors import CorruptObject
from tistream.format import manifest as manifests
from tistream.format.manifest import KIND_TICK, SEALED, UNMATCHED, Manifest, PendingPart
from tistream.format.segment import RowGroupInfo
from tistream.format.source_file import SourceFile, SourceGroup
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan

SOURCES = (
    SourceFile("store-1/file-1", 900, 800, (SourceGroup(0, 4, 100, 7, 11, 900), SourceGroup(3, 104, 90, 5, 2**32 - 1))),
    SourceFile("store-2/file-9", 500, 400, (SourceGroup(1, 9, 50, 2, 12),)),
)
PLAIN = PendingPart("plain", 10, "00000001", 3, UNMATCHED, 5, 6, 2**63 - 1, KeySpan(b"a", b"b\x00"))
POINTING = PendingPart("pointing", 10, "0000000a", 3, UNMATCHED, 5, 6, 9, KeySpan(b"a", b"b"), 1_000, SOURCES)
SEGMENT = PendingPart(
    "segment", 10, "0000000b", 3, SEALED, 5, 6, 9, KeySpan(b"", b""), row_groups=(RowGroupInfo(3, 7, 7, 9, 9),)
)


def manifest(*pending: PendingPart) -> Manifest:
    return Manifest(TenantKey("7", "acme"), 3, 2, 1, "n", KIND_TICK, WHOLE, 10, 20, pending=pending)


def as_version(version: int, body: bytes) -> bytes:
    return body[:4] + struct.pack("<I", version) + body[8:]


def test_what_a_part_points_into_is_restated() -> None:
    body = manifests.encode(manifest(PLAIN, POINTING, SEGMENT))
    assert manifests.decode("m", body).pending == (PLAIN, POINTING, SEGMENT)


def test_what_a_row_group_unpacks_to_need_not_be_told() -> None:
    """As in manifests that were written before it was; then it weighs what is fetched of it."""
    (source,) = POINTING.to_json()["sources"][1:]
    source[3] = [group[:5] for group in source[3]]
    assert SourceFile.from_json(source) == SOURCES[1]
    assert [group.weight for group in (*SOURCES[0].groups, *SOURCES[1].groups)] == [900, 90, 50]
    assert SourceGroup(0, 4, 100, 7, 11, 2**63 - 1).weight == 1 << 40


def test_a_manifest_of_version_1_is_read() -> None:
    """Its parts have none of the fields that came later."""
    assert set(PLAIN.to_json()) == {
        *("key", "size", "checksum", "rows", "kind", "start_ts_min", "start_ts_max", "commit_ts_min", "span"),
    }
    body = as_version(1, manifests.encode(manifest(PLAIN)))
    assert manifests.decode("m", body).pending == (PLAIN,)


def test_a_manifest_of_a_version_to_come_is_refused() -> None:
    with pytest.raises(CorruptObject, match=f"version {manifests.VERSION + 1}"):
        manifests.decode("m", as_version(manifests.VERSION + 1, manifests.encode(manifest(PLAIN))))


def test_a_manifest_that_points_is_refused_by_who_knows_version_1_alone() -> None:
    """An older program would take a row that points for a row without value."""
    (version,) = struct.unpack_from("<I", manifests.encode(manifest(POINTING)), 4)
    assert version >= 2
