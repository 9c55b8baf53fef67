"""Encodes the position at which an answer of a read at a point in time ended, as a cursor, which is opaque text. Pure.
The sealed body (read/cursor.py) is

    u8 kind | 12 bytes digest of the scope | i64 low_ts | i64 high_ts | u8 phase | i64 table_id | key
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from tistream.errors import InvalidRequest
from tistream.read.cursor import Scope, bad_cursor, from_text, to_text

_HEAD = struct.Struct(">B12sqqBq")
_AGAIN = "send it to the call that returned it, or begin again without cursor"


class Kind(IntEnum):
    """The call to which a cursor belongs. No number is a version of a pull's cursor, so the two cannot be confused."""

    ROWS = 0x81
    DIFF = 0x82
    SQUASH = 0x83
    SNAPSHOT = 0x84


@dataclass(frozen=True, slots=True)
class PointPosition:
    """The position of an answer: everything at or before it has been sent. `low_ts` is 0 in ListRows and in a snapshot.
    `phase` combines block and step of a net change (net_page.py); in a snapshot it is 0 before the first line, else 1.
    `table_id` is the logical id in a squashed pull and in a snapshot, the number of the compared table in DiffTable,
    and 0 in ListRows. An empty `key` is before the table's first key."""

    low_ts: int
    high_ts: int
    phase: int = 0
    table_id: int = 0
    key: bytes = b""


def encode(kind: Kind, scope: Scope, at: PointPosition) -> str:
    """Encode a position as a cursor's text. The cursor is valid only for this kind of call and this scope."""
    return to_text(_HEAD.pack(kind, scope.digest(), at.low_ts, at.high_ts, at.phase, at.table_id) + at.key)


def is_snapshot(text: str) -> bool:
    """Whether a text is a cursor of a pull with a snapshot. The scope is not checked."""
    try:
        return from_text(text)[:1] == bytes((Kind.SNAPSHOT,))
    except InvalidRequest:
        return False


def decode(kind: Kind, scope: Scope, text: str) -> PointPosition:
    """Parse a cursor's text. Raises InvalidRequest unless `encode` made it for this kind of call and this scope."""
    raw = from_text(text)
    if len(raw) < _HEAD.size or raw[0] not in tuple(Kind):
        raise bad_cursor(f"was not issued by this call: {_AGAIN}")
    found, digest, low_ts, high_ts, phase, table_id = _HEAD.unpack_from(raw)
    if found != kind or digest != scope.digest():
        raise bad_cursor(f"belongs to another call, tenant, database or table: {_AGAIN}")
    if min(low_ts, high_ts, table_id) < 0 or low_ts > high_ts:
        raise bad_cursor(f"was not issued by this service: {_AGAIN}")
    return PointPosition(low_ts, high_ts, phase, table_id, raw[_HEAD.size :])
