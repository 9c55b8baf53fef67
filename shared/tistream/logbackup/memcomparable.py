"""Memcomparable keys with a timestamp, one at a time: for the bounds of slices. Kernels decode whole slices.

A raw key is cut into groups of 8 bytes, the last one padded with zeros; each group is followed by 0xFF minus its number
of padding bytes. The last group has padding, so its marker is below 0xFF. Then come 8 bytes, big-endian `~ts`.
"""

from __future__ import annotations

GROUP, TS_BYTES = 8, 8
_MARK = 0xFF
_U64 = (1 << 64) - 1


def split(versioned: bytes) -> tuple[bytes, int] | None:
    """The raw key and the ts of a versioned key; None if it is malformed."""
    body = versioned[:-TS_BYTES]
    if not body or len(body) % (GROUP + 1) or len(versioned) < TS_BYTES:
        return None
    out = bytearray()
    for at in range(0, len(body), GROUP + 1):
        last = at + GROUP + 1 == len(body)
        padding = _MARK - body[at + GROUP]
        if padding > GROUP or (padding == 0) == last:
            return None
        end = at + GROUP - padding
        if any(body[end : at + GROUP]):
            return None
        out += body[at:end]
    return bytes(out), int.from_bytes(versioned[-TS_BYTES:], "big") ^ _U64


def joined(raw: bytes, ts: int) -> bytes:
    """The versioned key of a raw key and a ts."""
    out = bytearray()
    for at in range(0, len(raw) + 1, GROUP):
        group = raw[at : at + GROUP]
        out += group.ljust(GROUP, b"\0") + bytes([_MARK - (GROUP - len(group))])
    return bytes(out) + (ts ^ _U64).to_bytes(TS_BYTES, "big")
