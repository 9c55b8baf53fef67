"""How rows of RawKV are stored: their table ids, their keys, and the time at which they expire. Pure.

A raw key is `r`, three bytes of the keyspace's id, and the user's key. In the pool a keyspace is a table with the id
`-1 - keyspace`. A raw row belongs to no transaction of TiDB. Its column `txn_source` holds its `expire_ts` instead: the
time of its expiry in seconds since the Unix epoch; 0 or null if it does not expire.
"""

from __future__ import annotations

PREFIX = b"r"
PREFIX_BYTES = 4
EXPIRE = "txn_source"  # the column of segments, runs and pending parts that holds expire_ts
KEYSPACE_MAX = (1 << 24) - 1


def table_id(keyspace: int) -> int:
    """The table id under which the pool has the rows of a keyspace."""
    return -1 - keyspace


def keyspace_of(table: int) -> int:
    """The keyspace that a (negative) table id stands for."""
    return -1 - table


def prefix(keyspace: int) -> bytes:
    """The four bytes with which every key of a keyspace begins."""
    return PREFIX + keyspace.to_bytes(3, "big")
