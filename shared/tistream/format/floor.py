"""A task's floor object: which checkpoint manifest readers begin at, and so which manifests are needed no more.

JSON `{"version":1,"checkpoint":C}`. Manifest C restates everything that is live; manifests below C are collected, or
may be at any moment. One that is seen all the same proves nothing: a put long under way can bring it back. The schema
registry's log has a floor as well: there C is the number of a base.
"""

from __future__ import annotations

import json

from tistream.errors import CorruptObject

VERSION = 1


def encode(checkpoint: int) -> bytes:
    """The floor object's bytes."""
    return json.dumps({"version": VERSION, "checkpoint": checkpoint}).encode()


def decode(key: str, body: bytes) -> int:
    """The checkpoint's number, >= 1. Raises CorruptObject."""
    try:
        data = json.loads(body)
        version, checkpoint = data["version"], data["checkpoint"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(key, f"is no floor: {error!r}") from error
    if version != VERSION:
        raise CorruptObject(key, f"floor version {version!r}; this program knows {VERSION}")
    if not isinstance(checkpoint, int) or checkpoint < 1:
        raise CorruptObject(key, f"names checkpoint {checkpoint!r}")
    return checkpoint
