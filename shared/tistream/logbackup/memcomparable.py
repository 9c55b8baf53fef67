"""Encodes and decodes single versioned keys, for the bounds of a log backup's slices (metadata.Slice). The keys inside
of slices are decoded by kernels (decode/mvcc).

A versioned key is the memcomparable raw key (schema/tidb/meta_key.py) and 8 bytes, big-endian `~ts`.
"""

from __future__ import annotations

from tistream.schema.tidb.meta_key import decode_bytes, encode_bytes

TS_BYTES = 8
_U64 = (1 << 64) - 1


def split(versioned: bytes) -> tuple[bytes, int] | None:
    """Split a versioned key into its raw key and its ts; None if it is malformed."""
    try:
        raw, end = decode_bytes(versioned, 0)
    except ValueError:
        return None
    if len(versioned) != end + TS_BYTES:
        return None
    return raw, int.from_bytes(versioned[end:], "big") ^ _U64


def versioned_key(raw: bytes, ts: int) -> bytes:
    """Encode a raw key and a ts as a versioned key."""
    return encode_bytes(raw) + (ts ^ _U64).to_bytes(TS_BYTES, "big")
