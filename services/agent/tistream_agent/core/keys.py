"""Regions as PD returns them, and conversions of keys: PD and TiKV use memcomparable keys, with the prefix of a
keyspace; files have raw keys. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.span import WHOLE, KeySpan
from tistream.schema.tidb.meta_key import encode_bytes

_GROUP = 8
_FULL = 0xFF
_ID_END = 1 << 63


@dataclass(frozen=True, slots=True)
class Region:
    """A region in an answer of PD. Its bounds are memcomparable-encoded; an empty end means +infinity. `leader_store`
    is 0 if PD knows no leader."""

    region_id: int
    encoded_start: bytes
    encoded_end: bytes
    conf_ver: int
    version: int
    leader_store: int

    @property
    def is_known(self) -> bool:
        """Whether the region's id and version fit into a change file, whose numbers are signed. PD's numbers are
        unsigned."""
        return 0 < self.region_id < _ID_END and max(self.version, self.conf_ver, self.leader_store) < _ID_END

    def raw_span(self) -> KeySpan | None:
        """The span of the region in raw keys; None if no raw key lies between its bounds."""
        start, end = raw_bound(self.encoded_start), raw_bound(self.encoded_end)
        if self.encoded_end and (not end or end <= start):
            return None
        return KeySpan(start, end)


def raw_bound(encoded: bytes) -> bytes:
    """The smallest raw key whose encoding is not below `encoded`. The bound of a region need not be the encoding of a
    key (upstream-formats 6.8)."""
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
    """The smallest raw key that begins with `raw` and whose encoding is not below `encoded`. `group` is the group of
    bytes that follows `raw` in the bound."""
    padded = [raw + group[:used] for used in range(_GROUP + 1)]
    return min(key for key in (*padded, raw + group + b"\x00") if encode_bytes(key) >= encoded)


def encoded_bound(raw: bytes) -> bytes:
    """Encode the bound of a span of raw keys. An empty start or end stays empty, because it means infinity."""
    return encode_bytes(raw) if raw else b""


def prefix_end(prefix: bytes) -> bytes:
    """The lowest key above all keys with this prefix; empty if there is no such key."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b""


def raw_scope(keyspace: int | None) -> KeySpan:
    """The span of the RawKV keys of one keyspace, or of all keyspaces (None). In TiKV such a key is `r`, then the
    keyspace's id in three bytes, then the user's key."""
    prefix = b"r" if keyspace is None else b"r" + keyspace.to_bytes(3, "big")
    return KeySpan(prefix, prefix_end(prefix))


TIDB_SCOPE = KeySpan(b"m", b"u")
"""The span of TiDB's keys: `m` (the schema) and `t` (tables). No key of a TiDB is between the two, in TIDB_GAP."""
TIDB_GAP = KeySpan(b"n", b"t")


@dataclass(frozen=True, slots=True)
class KeyMap:
    """Converts between a tenant's keys in the platform and its keys in TiKV: they lie in `scope` and outside of `gap`,
    and in TiKV they have `prefix` before them.

    A tenant has no keys outside of its scope. So in the platform the first and the last span of its keys are unbounded,
    and in TiKV they end with the scope. It has none in the gap either: a region with keys of the gap alone is not
    registered, and the span beside it stands for these keys too (territory.cut_by_regions).
    """

    prefix: bytes = b""
    scope: KeySpan = WHOLE
    gap: KeySpan | None = None

    def on_wire(self, span: KeySpan) -> KeySpan | None:
        """Convert a span of keys in the platform to keys in TiKV; None if no key of the scope is in it."""
        inside = span.clip(self.scope)
        return None if inside is None else with_prefix(inside, self.prefix)

    def in_platform(self, span: KeySpan) -> KeySpan:
        """Convert a span of keys in TiKV, which must lie in the scope, to keys in the platform."""
        found = without_prefix(span, self.prefix)
        assert found.clip(self.scope) == found, span
        start = b"" if found.start == self.scope.start else found.start
        return KeySpan(start, b"" if found.end == self.scope.end else found.end)

    @property
    def gap_on_wire(self) -> KeySpan | None:
        """The gap in keys of TiKV; None if there is no gap."""
        return None if self.gap is None else with_prefix(self.gap, self.prefix)


def with_prefix(span: KeySpan, prefix: bytes) -> KeySpan:
    """Convert a span of keys in the platform to keys in TiKV, by putting the prefix before them."""
    if not prefix:
        return span
    return KeySpan(prefix + span.start, prefix + span.end if span.end else prefix_end(prefix))


def without_prefix(span: KeySpan, prefix: bytes) -> KeySpan:
    """Convert a span of keys in TiKV, which must have the prefix, to keys in the platform."""
    if not prefix:
        return span
    assert span.start.startswith(prefix), span
    end = b"" if span.end == prefix_end(prefix) else span.end[len(prefix) :]
    return KeySpan(span.start[len(prefix) :], end)
