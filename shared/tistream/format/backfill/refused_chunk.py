"""A refusal states why a base chunk is never used. It is a JSON object beside the chunk, `{"version":1,"reason":"…"}`
(docs/backfill.md). Pure."""

from __future__ import annotations

import json

from tistream.errors import CorruptObject

VERSION = 1
REASON_CHARS_MAX = 4_000


def encode(reason: str) -> bytes:
    """Encode the reason as the object's bytes. A long reason is cut."""
    return json.dumps({"version": VERSION, "reason": reason[:REASON_CHARS_MAX]}).encode()


def decode(key: str, body: bytes) -> str:
    """Decode the reason from the object's bytes. Raises CorruptObject."""
    try:
        data = json.loads(body)
        version, reason = data["version"], data["reason"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(key, f"is not a valid refusal of a chunk: {error!r}") from error
    if version != VERSION or not isinstance(reason, str):
        raise CorruptObject(key, f"refusal version {version!r}; this program knows {VERSION}")
    return reason
