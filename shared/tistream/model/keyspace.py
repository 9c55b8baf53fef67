"""Keys of a keyspace: with API V2 TiKV has `x` and three bytes of the keyspace's id before each of TiDB's own keys.

A tenant is one TiDB, whose keys are pushed as TiDB has them. Such a prefix would make every key one that is neither a
row's nor the schema's; so it is refused by name.
"""

from __future__ import annotations

from tistream.model.span import shown_key

PREFIX = b"x"
PREFIX_BYTES = 4


def keyspace_of(key: bytes) -> int | None:
    """The keyspace whose prefix the key has; None if it has none."""
    if len(key) < PREFIX_BYTES or not key.startswith(PREFIX):
        return None
    return int.from_bytes(key[1:PREFIX_BYTES], "big")


def refusal(key: bytes) -> str | None:
    """Why a key is refused, and the way out; None if it is not."""
    keyspace = keyspace_of(key)
    if keyspace is None:
        return None
    return (
        f"key {shown_key(key)} is of keyspace {keyspace}: a tenant has the keys of one TiDB as TiDB has them, and "
        "whoever pushes those of a keyspace strips these four bytes"
    )
