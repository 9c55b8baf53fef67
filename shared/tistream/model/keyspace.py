"""Rejects keys with the prefix of a keyspace: with API V2, TiKV prepends `x` and the keyspace's id (three bytes).

A tenant is one TiDB, and its keys are pushed without such a prefix. With the prefix, a key would be recognised neither
as that of a row nor as that of the schema, and would be lost silently.
"""

from __future__ import annotations

from tistream.model.span import shown_key

PREFIX = b"x"
PREFIX_BYTES = 4


def keyspace_of(key: bytes) -> int | None:
    """The id of the keyspace in the key's prefix; None without such a prefix."""
    if len(key) < PREFIX_BYTES or not key.startswith(PREFIX):
        return None
    return int.from_bytes(key[1:PREFIX_BYTES], "big")


def refusal(key: bytes) -> str | None:
    """The reason why a key is rejected, and what to do about it; None if the key is valid."""
    keyspace = keyspace_of(key)
    if keyspace is None:
        return None
    return (
        f"key {shown_key(key)} is of keyspace {keyspace}: a tenant's keys have no keyspace prefix, so the "
        "agent that pushes the changes of a keyspace strips these four bytes"
    )
