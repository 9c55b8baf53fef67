"""Encodes and decodes the keys of the `m` space, where TiDB stores its metadata (upstream-formats 3.2): strings
`m|enc(K)|'s'` and hash fields `m|enc(K)|'h'|enc(F)`."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.span import KeySpan

META_SPAN = KeySpan(b"m", b"n")

_GROUP = 8
_PREFIX = b"m"
_STRING = (ord("s")).to_bytes(8, "big")
_HASH = (ord("h")).to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class MetaKey:
    """A parsed key of the `m` space. `field` is None if the key is that of a string, not of a hash field."""

    key: bytes
    field: bytes | None


def encode_bytes(data: bytes) -> bytes:
    """Encode bytes as memcomparable: groups of 8 bytes, each with a marker byte that counts the padding bytes."""
    out = bytearray()
    for at in range(0, len(data) + 1, _GROUP):
        group = data[at : at + _GROUP]
        pad = _GROUP - len(group)
        out += group + bytes(pad) + bytes((0xFF - pad,))
    return bytes(out)


def decode_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Decode memcomparable bytes that begin at offset `at`. Returns (the bytes, the offset after them). Raises
    ValueError."""
    out = bytearray()
    while True:
        group = data[at : at + _GROUP + 1]
        if len(group) != _GROUP + 1:
            raise ValueError("memcomparable bytes are truncated")
        at += _GROUP + 1
        pad = 0xFF - group[_GROUP]
        if pad > _GROUP or any(group[_GROUP - pad : _GROUP]):
            raise ValueError("memcomparable bytes have an invalid group")
        out += group[: _GROUP - pad]
        if pad:
            return bytes(out), at


def encode_key(key: bytes, field: bytes | None = None) -> bytes:
    """Encode the raw key of a string (`field` None) or of a hash field."""
    if field is None:
        return _PREFIX + encode_bytes(key) + _STRING
    return _PREFIX + encode_bytes(key) + _HASH + encode_bytes(field)


def decode_key(raw: bytes) -> MetaKey | None:
    """Parse a raw key. Returns None for any other key of the space (lists, metadata of hashes).

    Raises:
        ValueError: the key does not begin with `m`, or it is truncated.
    """
    if raw[:1] != _PREFIX:
        raise ValueError("not an m key")
    key, at = decode_bytes(raw, 1)
    letter, rest = raw[at : at + 8], raw[at + 8 :]
    if letter == _STRING and not rest:
        return MetaKey(key, None)
    if letter != _HASH:
        return None
    field, end = decode_bytes(rest, 0)
    if end != len(rest):
        raise ValueError("there are extra bytes after a hash field")
    return MetaKey(key, field)
