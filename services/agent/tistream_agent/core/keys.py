"""Regions as PD returns them, and their bounds: memcomparable on the wire, raw in rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.span import WHOLE, KeySpan
from tistream.schema.tidb.meta_key import encode_bytes

_GROUP = 8
_FULL = 0xFF
_ID_END = 1 << 63


@dataclass(frozen=True, slots=True)
class Region:
    """A region of PD's answer. The bounds are encoded; an empty end means +infinity. `leader_store` is 0 if PD knows no
    leader."""

    region_id: int
    encoded_start: bytes
    encoded_end: bytes
    conf_ver: int
    version: int
    leader_store: int

    @property
    def is_known(self) -> bool:
        """Whether its id and version fit into a change file, whose numbers are signed. PD's are unsigned."""
        return 0 < self.region_id < _ID_END and max(self.version, self.conf_ver, self.leader_store) < _ID_END

    def raw_span(self) -> KeySpan | None:
        """The raw keys of the region; None if its bounds have no key between them."""
        start, end = raw_bound(self.encoded_start), raw_bound(self.encoded_end)
        if self.encoded_end and (not end or end <= start):
            return None
        return KeySpan(start, end)


def raw_bound(encoded: bytes) -> bytes:
    """The smallest raw key whose encoding is not below `encoded`: a bound need not be a whole encoded key
    (upstream-formats 6.8)."""
    raw = bytearray()
    at = 0
    while at < len(encoded):
        group, marker = encoded[at : at + _GROUP], encoded[at + _GROUP : at + _GROUP + 1]
        if not marker:  # the bound ends within a group: a key that goes on with these bytes encodes to it or above
            return bytes(raw) + group.rstrip(b"\x00")
        used = _GROUP - (_FULL - marker[0])
        if used == _GROUP:
            raw += group
            at += _GROUP + 1
            continue
        if used >= 0 and not any(group[used:]) and at + _GROUP + 1 == len(encoded):
            return bytes(raw + group[:used])
        # Not an encoding. Keys that begin with the whole group are the next ones above it, or the key after padding.
        return _above(bytes(raw), group, encoded)
    return bytes(raw)


def _above(raw: bytes, group: bytes, encoded: bytes) -> bytes:
    """The smallest raw key with prefix `raw` whose encoding is not below `encoded`; one of the few candidates below."""
    padded = [raw + group[:used] for used in range(_GROUP + 1)]
    return min(key for key in (*padded, raw + group + b"\x00") if encode_bytes(key) >= encoded)


def encoded_bound(raw: bytes) -> bytes:
    """The encoded form of a raw bound; an empty start or end stays empty, because it is infinite."""
    return encode_bytes(raw) if raw else b""


def prefix_end(prefix: bytes) -> bytes:
    """The first key above all keys with this prefix; empty if no key is above them."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b""


def raw_scope(keyspace: int | None) -> KeySpan:
    """The keys of RawKV of one keyspace, or of all of them (None): `r`, three bytes of the id, the user's key."""
    prefix = b"r" if keyspace is None else b"r" + keyspace.to_bytes(3, "big")
    return KeySpan(prefix, prefix_end(prefix))


@dataclass(frozen=True, slots=True)
class KeyMap:
    """The form of a tenant's keys on the wire: either with `prefix` before them, or unchanged within `scope`.

    A tenant has no keys outside of its scope, so the first and the last keys of the scope stand for all keys below and
    above: to the platform the tenant's keys have no end.
    """

    prefix: bytes = b""
    scope: KeySpan = WHOLE

    def __post_init__(self) -> None:
        assert not self.prefix or self.scope == WHOLE

    def on_wire(self, span: KeySpan) -> KeySpan | None:
        """The span on the wire of a platform's span; None if no key of the scope is in it."""
        return with_prefix(span, self.prefix) if self.prefix else span.clip(self.scope)

    def in_platform(self, span: KeySpan) -> KeySpan:
        """The platform's span of one on the wire, which must lie within the scope."""
        if self.prefix:
            return without_prefix(span, self.prefix)
        assert span.clip(self.scope) == span, span
        start = b"" if span.start == self.scope.start else span.start
        return KeySpan(start, b"" if span.end == self.scope.end else span.end)


def with_prefix(span: KeySpan, prefix: bytes) -> KeySpan:
    """The span on the wire of a platform's span."""
    if not prefix:
        return span
    return KeySpan(prefix + span.start, prefix + span.end if span.end else prefix_end(prefix))


def without_prefix(span: KeySpan, prefix: bytes) -> KeySpan:
    """The platform's span of one on the wire, which must lie within the prefix."""
    if not prefix:
        return span
    assert span.start.startswith(prefix), span
    end = b"" if span.end == prefix_end(prefix) else span.end[len(prefix) :]
    return KeySpan(span.start[len(prefix) :], end)
