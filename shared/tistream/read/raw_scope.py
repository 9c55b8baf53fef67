"""The scope of a RawKV pull: all keys of a tenant, all keys of one keyspace, or a range in it. Pure."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from tistream.model import raw_row
from tistream.model.span import WHOLE, KeySpan
from tistream.read.cursor import Scope


@dataclass(frozen=True, slots=True)
class RawScope(Scope):
    """The scope of PullRaw. `keyspace` None means every keyspace. `users` is the span of user keys, without the prefix
    of the keyspace; without a keyspace it must be unbounded."""

    keyspace: int | None = None
    users: KeySpan = WHOLE

    def __post_init__(self) -> None:
        assert self.keyspace is not None or self.users == WHOLE

    @property
    def call(self) -> str:
        """The name of the API call that reads this scope."""
        return "PullRaw"

    @property
    def span(self) -> KeySpan | None:
        """The span of raw keys that the scope reads; None: the keys of every keyspace."""
        if self.keyspace is None:
            return None
        prefix = raw_row.prefix(self.keyspace)
        after = raw_row.prefix(self.keyspace + 1) if self.keyspace < raw_row.KEYSPACE_MAX else b"s"
        return KeySpan(prefix + self.users.start, prefix + self.users.end if self.users.end else after)

    def digest(self) -> bytes:
        """A digest of 12 bytes that identifies the scope in a cursor."""
        keyspace = "" if self.keyspace is None else str(self.keyspace)
        names = (self.tenant.cluster_id, self.tenant.tenant_id, self.call, keyspace)
        parts = (*(name.encode() for name in names), self.users.start, self.users.end)
        raw = b"".join(struct.pack(">I", len(part)) + part for part in parts)
        return hashlib.blake2b(raw, digest_size=12, person=b"tistream-scope").digest()
