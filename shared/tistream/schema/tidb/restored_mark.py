"""Encodes and decodes the mark of a restore by BR: a key of the `m` space that TiStream itself puts into the change
files of a log backup, because TiDB writes none (docs/log-backup.md). Pure.

The key is a field of the hash `DBs`, `DB:restored:{name}`. A schema registry that does not know marks cannot decode
such a field, and so holds the tenant. With any other key it would skip the mark, and serve tables that lack rows.
"""

from __future__ import annotations

import orjson

from tistream.schema.records import RestoredTables
from tistream.schema.tidb.meta_key import encode_key

HASH, FIELD = b"DBs", b"DB:restored:"
VERSION = 1


def encode(restored: RestoredTables) -> tuple[bytes, bytes]:
    """Encode a mark. Returns its raw key and its value."""
    value = {"version": VERSION, "from_ts": restored.from_ts, "to_ts": restored.to_ts, "ids": list(restored.ids)}
    return encode_key(HASH, FIELD + restored.name.encode()), orjson.dumps(value)


def decode(field: bytes, value: bytes | None) -> RestoredTables:
    """Decode a mark from its field and its value. Raises ValueError, KeyError or TypeError."""
    found = orjson.loads(value or b"")
    if found["version"] != VERSION:
        raise ValueError(f"mark of a restore, version {found['version']!r}; this program knows {VERSION}")
    numbers = (found["from_ts"], found["to_ts"], *found["ids"])
    if any(type(one) is not int for one in numbers):
        raise ValueError("mark of a restore: not a number")
    return RestoredTables(field.removeprefix(FIELD).decode(), found["from_ts"], found["to_ts"], tuple(found["ids"]))
