"""Manifests of every version that was ever written are read: what a version did not have is what it meant without."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
import zstandard

from tistream.format import manifest as manifests
from tistream.format.manifest import KIND_TICK, NOTHING_TAKEN, ChainPosition, IntakeCount, Manifest, Merging
from tistream.format.run import IndexPart, RunRef
from tistream.model.base_cover import Base
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan

# The version that began to write a header's field.
SINCE = {"retained_ts": 3, "schema_retained_ts": 3, "heritage": 3, "intake": 4, "merge": 5, "cover": 6, "index": 6}
FULL = Manifest(
    TenantKey("7", "acme"),
    3,
    12,
    4,
    "nonce",
    KIND_TICK,
    KeySpan(b"a", b"m"),
    10,
    20,
    positions={1: (ChainPosition(5, 9), ChainPosition(11, 13))},
    counters={"committed_rows": 8},
    checkpoint=7,
    stop_at=30,
    merge=Merging(9, WHOLE, (3, 4)),
    retained_ts=6,
    schema_retained_ts=5,
    heritage=(1, 2),
    written_ms=77,
    intake=IntakeCount({3_600_000: 512}, {1: (ChainPosition(5, 7),)}),
    cover=(Base(KeySpan(b"b", b"c"), 15),),
    index=(
        IndexPart(
            KeySpan(b"a", b"m"),
            2,
            6,
            9,
            (RunRef("run", 10, "0a", 4, 6, 9, (1, b"b"), (1, b"c")),),
            (RunRef("base", 9, "0a0b0c0d", 2, None, 15, (104, b"b1"), (104, b"b2")),),
        ),
    ),
)
WITHOUT = {
    "retained_ts": 0,
    "schema_retained_ts": 0,
    "heritage": (),
    "intake": NOTHING_TAKEN,
    "merge": None,
    "cover": None,
    "index": None,
}


def written_by(version: int, manifest: Manifest) -> bytes:
    """The object that a program of this version would have written."""
    data = manifests.encode(manifest)
    body = zstandard.decompress(data[12:])
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    assert SINCE.keys() <= header.keys()
    text = json.dumps({name: value for name, value in header.items() if SINCE.get(name, 1) <= version}).encode()
    packed = zstandard.compress(struct.pack("<I", len(text)) + text + body[4 + length :])
    return data[:4] + struct.pack("<II", version, zlib.crc32(packed)) + packed


@pytest.mark.parametrize("version", manifests.KNOWN_VERSIONS)
def test_what_a_version_has_is_read_and_the_rest_is_what_it_meant(version: int) -> None:
    found = manifests.decode("m", written_by(version, FULL))
    for name in Manifest.__dataclass_fields__:
        wanted = getattr(FULL, name) if SINCE.get(name, 1) <= version else WITHOUT[name]
        assert getattr(found, name) == wanted, name


def test_of_version_4_a_stop_does_not_say_what_for() -> None:
    found = manifests.decode("m", written_by(4, FULL))
    assert (found.stop_at, found.merge, found.intake) == (30, None, FULL.intake)


def test_what_is_written_now_is_the_newest_of_them() -> None:
    (version,) = struct.unpack_from("<I", manifests.encode(FULL), 4)
    assert version == manifests.VERSION == max(manifests.KNOWN_VERSIONS) == max(SINCE.values())
