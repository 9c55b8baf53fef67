"""The position of a pull, and its encoding as an opaque text, the cursor. Pure.

The text is urlsafe base64 without padding of

u8 version = 1 | 12 bytes digest of the scope | i64 commit_ts | u8 place | i64 start_ts | i64 table_id | u8 op
    | key | 8 bytes digest of all before

The digests detect a changed letter, and a cursor of another tenant or call. A cursor is only a position: it names no
file, holds no secret, and has none of the other parameters, which every request states again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from dataclasses import dataclass
from enum import IntEnum

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.schema.visible import fold

VERSION = 1
_POINT_KINDS = 0x80  # a first byte at or above this one is a point_cursor.Kind
_HEAD = struct.Struct(">B12sqBqqB")
_CHECK_BYTES = 8
_TEXT = re.compile(r"[A-Za-z0-9_-]{1,65536}")


class Place(IntEnum):
    """How much of a commit_ts has been sent: the row events up to a given one, all row events and some DDL events, or
    everything."""

    ROW = 0  # every row event up to the named one, and no ddl event
    DDL = 1  # every row event, and the first N ddl events; N is in `table_id`
    DONE = 2  # every event


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The position of a pull: every event at or before it has been sent. Positions compare in the order in which events
    are sent.

    `op` is 0 for a delete and 1 for a put: within one transaction and table, all deletes come first. `table_id` is the
    logical one.
    """

    commit_ts: int
    place: Place = Place.DONE
    start_ts: int = 0
    table_id: int = 0
    op: int = 0
    key: bytes = b""

    @property
    def low_ts(self) -> int:
        """The highest ts for which all events at or below it have been sent."""
        return self.commit_ts if self.place is Place.DONE else self.commit_ts - 1


@dataclass(frozen=True, slots=True)
class Scope:
    """What a pull reads: a whole tenant, one of its databases, or one of its tables. Databases and tables are given by
    name, and a name may mean different objects over time."""

    tenant: TenantKey
    database: str | None = None
    table: str | None = None

    @property
    def shown(self) -> str:
        """What the scope names, in an error's text: `table D.T`, `database D` or `tenant C/T`."""
        if self.table is not None:
            return f"table {self.database}.{self.table}"
        return f"tenant {self.tenant}" if self.database is None else f"database {self.database}"

    @property
    def call(self) -> str:
        """The name of the API call that reads this scope."""
        return "PullTenant" if self.database is None else "PullDB" if self.table is None else "PullTable"

    def digest(self) -> bytes:
        """A digest of 12 bytes that identifies the scope. Databases and tables compare case-insensitively, as in
        TiDB."""
        names = (self.tenant.cluster_id, self.tenant.tenant_id, self.call, self.database or "", self.table or "")
        folded = [name if at < 3 else fold(name) for at, name in enumerate(names)]
        raw = b"".join(struct.pack(">I", len(text)) + text for text in (name.encode() for name in folded))
        return hashlib.blake2b(raw, digest_size=12, person=b"tistream-scope").digest()


def encode(scope: Scope, at: Position) -> str:
    """Encode the position `at` as the text of a cursor. The cursor is valid only for this scope."""
    head = _HEAD.pack(VERSION, scope.digest(), at.commit_ts, at.place, at.start_ts, at.table_id, at.op)
    return to_text(head + at.key)


def to_text(body: bytes) -> str:
    """Encode the bytes of a cursor as text. A digest is added, by which `from_text` detects a changed letter."""
    return base64.urlsafe_b64encode(body + _check(body)).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Decode the bytes of a cursor. Raises InvalidRequest for a text that `to_text` has not made."""
    raw = _raw(text)
    if len(raw) < _CHECK_BYTES or _check(raw[:-_CHECK_BYTES]) != raw[-_CHECK_BYTES:]:
        raise bad_cursor("was not issued by this service")
    return raw[:-_CHECK_BYTES]


def decode(scope: Scope, text: str) -> Position:
    """Decode a cursor's text to a position. Raises InvalidRequest if it is malformed or belongs to another scope."""
    raw = from_text(text)
    if len(raw) < _HEAD.size:
        raise bad_cursor("was not issued by this service")
    version, digest, commit_ts, place, start_ts, table_id, op = _HEAD.unpack_from(raw)
    if version >= _POINT_KINDS:
        raise bad_cursor("is of another call: a pull with squash=true, DiffTable or ListRows")
    if version != VERSION:
        raise bad_cursor(f"is of version {version}; this program knows {VERSION}")
    if digest != scope.digest():
        raise bad_cursor(f"belongs to another call, tenant, database or table than this {scope.call}")
    if min(commit_ts, start_ts, table_id) < 0 or place not in tuple(Place) or op > 1:
        raise bad_cursor("was not issued by this service")
    return Position(commit_ts, Place(place), start_ts, table_id, op, raw[_HEAD.size :])


def _raw(text: str) -> bytes:
    if not text.isascii() or not _TEXT.fullmatch(text):
        raise bad_cursor("was not issued by this service")
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise bad_cursor("was not issued by this service") from error
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:  # the unused bits after the last byte were changed
        raise bad_cursor("was not issued by this service")
    return raw


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECK_BYTES, person=b"tistream-cursor").digest()


def bad_cursor(why: str) -> InvalidRequest:
    """Build the error for a cursor that cannot be used, with the reason `why`."""
    return InvalidRequest(f"cursor {why}", {"parameter": "cursor"})
