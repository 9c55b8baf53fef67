"""A task's floor object: the checkpoint manifest at which readers begin, and below which manifests are no longer
needed.

JSON `{"version":1,"checkpoint":C}`. Manifest C restates everything that is live. Manifests below C may be deleted at
any time. A manifest below C must be ignored even if it exists, because a delayed PUT can create a deleted one again.
The schema registry's log has a floor too: there, C is the number of a base.
"""

from __future__ import annotations

import json

from tistream.errors import CorruptObject

VERSION = 1


def encode(checkpoint: int) -> bytes:
    """The floor object's bytes."""
    return json.dumps({"version": VERSION, "checkpoint": checkpoint}).encode()


def decode(key: str, body: bytes) -> int:
    """Parse the checkpoint's number, which is >= 1. Raises CorruptObject."""
    try:
        data = json.loads(body)
        version, checkpoint = data["version"], data["checkpoint"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(key, f"is not a valid floor object: {error!r}") from error
    if version != VERSION:
        raise CorruptObject(key, f"floor version {version!r}; this program knows {VERSION}")
    if not isinstance(checkpoint, int) or checkpoint < 1:
        raise CorruptObject(key, f"names the invalid checkpoint {checkpoint!r}")
    return checkpoint
